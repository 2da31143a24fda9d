// graphile-worker as its documentation tunes it for throughput: a local queue, batched completion, 24 jobs at once.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { BATCH, PAYLOAD, Runs, inAnHour, serve, timed } from './serve.mjs'

const connectionString = process.env.PGURL
const pool = new pg.Pool({ connectionString })
const logger = new Logger(() => () => {})
const worker = {
  connectionString, concurrentJobs: 24, maxPoolSize: 12, logger,
  localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0
}
const utils = await makeWorkerUtils({ connectionString, logger })
await utils.migrate()
let runs, runner

const many = (length, when) => Array.from({ length }, () => ({ identifier: 'swallow', payload: { data: PAYLOAD }, ...when }))

await serve({
  put: (count) => timed(count, 1, () => utils.addJob('swallow', { data: PAYLOAD }, { runAt: inAnHour() })),
  put_many: (count) => timed(count, BATCH, () => utils.addJobs(many(BATCH, { runAt: inAnHour() }))),
  async fill (count) {
    await pool.query('TRUNCATE graphile_worker._private_jobs')
    await timed(count, BATCH, () => utils.addJobs(many(Math.min(BATCH, count), {})))
    await pool.query('VACUUM ANALYZE graphile_worker._private_jobs')
  },
  async start () {
    runs = new Runs()
    const taskList = { swallow: async () => runs.note() }
    runner = await run({ preset: { worker }, noHandleSignals: true, taskList })
  },
  look: () => runs,
  stop: () => runner.stop()
})
await utils.release()
await pool.end()
process.exit(0)
