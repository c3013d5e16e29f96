// How every job queue of Node is measured: as `../measure` does it for those of Rust.
import pg from 'pg';

export const url = process.env.DATABASE_URL;
export const env = (name, fallback) => Number(process.env[name] ?? fallback);
export const mode = process.argv[2];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();
const LIMIT_MS = 300e3;
const WAL = `select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint`;

let ran = 0;
const started = new Map();

// Handlers call this first.
export function handlerStarted(job) {
  if (!started.has(job)) started.set(job, now());
  ran++;
}

// `queue` has a name, `done` (a query that counts the jobs recorded as done), and the functions
// enqueue(jobs), enqueueOne(job) and work(), which starts the workers.
export async function measure(queue) {
  const probe = new pg.Client({ connectionString: url });
  await probe.connect();
  const number = async (sql) => Number(Object.values((await probe.query(sql)).rows[0])[0]);
  const measured = await { burn, latency }[mode](queue, number);
  console.log(JSON.stringify({ queue: queue.name, ...measured }));
  process.exit(0);
}

async function burn(queue, number) {
  const jobs = env('JOBS', 20000), batch = env('ENQUEUE_BATCH', 1000);
  const before = await number(WAL);
  let start = now();
  for (let from = 0; from < jobs; from += batch)
    await queue.enqueue(Array.from({ length: Math.min(batch, jobs - from) }, (_, place) => from + place));
  const enqueue = now() - start;
  const enqueued = await number(WAL);
  start = now();
  await queue.work();
  while (ran < jobs) {
    if (now() - start > LIMIT_MS) throw new Error(`only ${ran} of ${jobs} jobs ran`);
    await sleep(2);
  }
  while ((await number(queue.done)) < jobs) {
    if (now() - start > LIMIT_MS) throw new Error('not all jobs are recorded as done');
    await sleep(5);
  }
  const took = now() - start;
  const after = await number(WAL);
  return { jobs, ran, jobs_per_s: (jobs / took) * 1e3, enqueued_per_s: (jobs / enqueue) * 1e3,
    wal_enqueue: (enqueued - before) / jobs, wal_run: (after - enqueued) / jobs };
}

async function latency(queue) {
  await queue.work();
  await sleep(2000);
  const after = [], call = [], jobs = env('PICK_UPS', 300);
  for (let job = 0; job < jobs; job++) {
    const called = now();
    await queue.enqueueOne(job);
    const enqueued = now();
    while (!started.has(job)) {
      if (now() - enqueued > 60e3) throw new Error(`job ${job} did not start`);
      await sleep(1);
    }
    after.push(started.get(job) - enqueued);
    call.push(started.get(job) - called);
    // Another pause each time, or a worker that polls would meet the same moment over and over.
    await sleep(env('GAP_MS', 100) + ((job * 37) % 41));
  }
  const quantile = (values, part) =>
    values.sort((a, b) => a - b)[Math.max(1, Math.ceil(values.length * part)) - 1];
  return { pick_ups: jobs, p50_ms: quantile(after, 0.5), p99_ms: quantile(after, 0.99),
    call_p50_ms: quantile(call, 0.5), call_p99_ms: quantile(call, 0.99) };
}
