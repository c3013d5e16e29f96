// graphile-worker. With LOCALQUEUE: batched as its performance page does it; without: one job per query.
process.env.NO_LOG_SUCCESS = '1';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { env, handlerStarted, measure, url } from './measure.mjs';

const concurrentJobs = env('CONCURRENCY', 24), size = env('LOCALQUEUE', 0);
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message); });
const batched = size ? { localQueue: { size }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
const worker = { connectionString: url, concurrentJobs, maxPoolSize: concurrentJobs + 2, logger, ...batched };
const utils = await makeWorkerUtils({ preset: { worker } });
await utils.migrate();

await measure({
  name: 'graphile-worker',
  // Jobs that are done are deleted.
  done: `select ${env('JOBS', 20000)} - count(*) from graphile_worker._private_jobs`,
  enqueue: (jobs) => utils.addJobs(jobs.map((seq) => ({ identifier: 'noop', payload: { seq } }))),
  enqueueOne: (seq) => utils.addJob('noop', { seq }),
  work: () => run({ preset: { worker }, taskList: { noop: async (job) => handlerStarted(job.seq) } }),
});
