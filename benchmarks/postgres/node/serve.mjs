// A line asks, a line answers, as in benchmarks/peers.py. The end of the questions is the end.
import readline from 'node:readline'

export const BATCH = 1000
export const PAYLOAD = 'x'.repeat(98)
export const inAnHour = () => new Date(Date.now() + 3600e3)

// Counts runs, and when the first and the last were, in seconds.
export class Runs {
  count = 0
  first = 0
  last = 0

  note () {
    this.last = Date.now() / 1000
    if (!this.count++) this.first = this.last
  }
}

// -> the seconds for one of so many, done one after another, each worth `step` of them.
export async function timed (count, step, work) {
  const started = performance.now()
  for (let done = 0; done < count; done += step) await work()
  return (performance.now() - started) / 1000 / count
}

export async function serve (turns) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [what, count] = line.split(' ')
    console.log(JSON.stringify((await turns[what](Number(count))) ?? null))
  }
}
