// graphile-worker as its documentation tunes it for throughput: a local queue, batched completion, 24 jobs at once.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { BATCH, PAYLOAD, Runs, inAnHour, serve, timed } from './serve.mjs'

const pgPool = new pg.Pool({ connectionString: process.env.PGURL, max: 12 })
pgPool.on('error', (error) => console.error(error))
pgPool.on('connect', (client) => client.on('error', (error) => console.error(error)))
const logger = new Logger(() => () => {})
const worker = {
  concurrentJobs: 24, maxPoolSize: 12, logger,
  localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0
}
const utils = await makeWorkerUtils({ pgPool, logger })
await utils.migrate()
let runs, runner

const many = (length, when) => Array.from({ length }, () => ({ identifier: 'swallow', payload: { data: PAYLOAD }, ...when }))

await serve({
  put: (count) => timed(count, 1, () => utils.addJob('swallow', { data: PAYLOAD }, { runAt: inAnHour() })),
  put_many: (count) => timed(count, BATCH, () => utils.addJobs(many(BATCH, { runAt: inAnHour() }))),
  async fill (count) {
    await pgPool.query('TRUNCATE graphile_worker._private_jobs')
    await timed(count, BATCH, () => utils.addJobs(many(Math.min(BATCH, count), {})))
    await pgPool.query('VACUUM ANALYZE graphile_worker._private_jobs')
  },
  async start () {
    runs = new Runs()
    const taskList = { swallow: async () => runs.note() }
    runner = await run({ preset: { worker: { ...worker, pgPool } }, noHandleSignals: true, taskList })
  },
  look: () => runs,
  stop: () => runner.stop()
})
await utils.release()
await pgPool.end()
process.exit(0)
