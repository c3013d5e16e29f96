// pg-boss: CONCURRENCY workers. Each fetches and completes BATCH jobs per call of the handler, without a
// pause as long as batches are full. A batch succeeds or fails as one.
import { PgBoss } from 'pg-boss';
import { env, handlerStarted, measure, mode, url } from './measure.mjs';

const boss = new PgBoss({ connectionString: url, max: 20, useListenNotify: true });
boss.on('error', (error) => console.error(error.message));
await boss.start();
await boss.createQueue('bench', { notify: true });

await measure({
  name: 'pg-boss',
  done: `select count(*) from pgboss.job where name = 'bench' and state = 'completed'`,
  enqueue: (jobs) => boss.insert('bench', jobs.map((seq) => ({ data: { seq } }))),
  enqueueOne: (seq) => boss.send('bench', { seq }),
  work: () =>
    boss.work(
      'bench',
      {
        batchSize: env('BATCH', 1000),
        localConcurrency: env('CONCURRENCY', 2),
        burstWhenBatchFull: true,
        pollingIntervalSeconds: 0.5,
        // A pick-up is to come from the notification, not from a poll that happened to be near.
        notifyPollingIntervalSeconds: mode === 'burn' ? 0.5 : 30,
      },
      async (jobs) => jobs.forEach((job) => handlerStarted(job.data.seq)),
    ),
});
