// pg-boss tuned for throughput: batches of a thousand, fetched again at once while they are full.
import pg from 'pg'
import { PgBoss } from 'pg-boss'
import { BATCH, PAYLOAD, Runs, inAnHour, serve, timed } from './serve.mjs'

const connectionString = process.env.PGURL
const pool = new pg.Pool({ connectionString })
const boss = new PgBoss({ connectionString, schedule: false })
boss.on('error', (error) => console.error(error))
await boss.start()
await boss.createQueue('swallow')
let runs

const many = (length, when) => Array.from({ length }, () => ({ data: { data: PAYLOAD }, ...when }))

await serve({
  put: (count) => timed(count, 1, () => boss.send('swallow', { data: PAYLOAD }, { startAfter: inAnHour() })),
  put_many: (count) => timed(count, BATCH, () => boss.insert('swallow', many(BATCH, { startAfter: inAnHour() }))),
  async fill (count) {
    await pool.query('TRUNCATE pgboss.job')
    await timed(count, BATCH, () => boss.insert('swallow', many(Math.min(BATCH, count), {})))
    await pool.query('VACUUM ANALYZE pgboss.job')
  },
  async start () {
    runs = new Runs()
    const how = { batchSize: BATCH, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, localConcurrency: 1 }
    await boss.work('swallow', how, async (jobs) => { for (const _ of jobs) runs.note() })
  },
  look: () => runs,
  stop: () => boss.offWork('swallow')
})
await boss.stop({ timeout: 3000 })
await pool.end()
process.exit(0)
