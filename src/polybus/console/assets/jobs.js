// Verbs that deal with many messages at once: the bus works on them as jobs, whose progress the live figures tell.
import { bulk, json } from "./api.js";
import { figures } from "./live.js";
import { session } from "./state.js";

/** What a verb would do, without doing it: how many messages it would take. */
export async function tally(path, verb, choice) {
  return json("POST", bulk(path, verb), { ...choice, dry_run: true, wait_seconds: 10 });
}

/** Starts a verb and follows it to its end; `tell` is called with the job as it goes on. */
export async function carryOut(path, verb, choice, tell, signal) {
  let job = await json("POST", bulk(path, verb), { ...choice, wait_seconds: 1 });
  tell(job);
  const stop = () => json("DELETE", `/$polybus/jobs/${job.job}`).catch(() => {});
  signal?.addEventListener("abort", stop);
  while (job.state === "running") {
    await nextFigures();
    if (!session.value) break;
    job = await json("GET", `/$polybus/jobs/${job.job}`);
    tell(job);
  }
  signal?.removeEventListener("abort", stop);
  if (job.state === "failed") throw new Error(job.error ?? "The job failed.");
  return job;
}

/** Resolves with the next event of the live figures: the bus sets the pace, not a timer of ours. */
function nextFigures() {
  return new Promise((done) => {
    const follower = () => {
      figures.followers.delete(follower);
      done();
    };
    figures.followers.add(follower);
  });
}

/** What became of a job's messages, in words. */
export function outcome(job, verb) {
  const words = [`${verb} ${job.done.toLocaleString("en-US")}`];
  if (job.missing) words.push(`${job.missing} were gone`);
  if (job.locked) words.push(`${job.locked} are locked by receivers`);
  if (job.unreachable?.length) words.push(`${job.unreachable.length} partitions could not be reached`);
  if (job.state === "stopped") words.push("stopped by you");
  return `${words.join("; ")}.`;
}
