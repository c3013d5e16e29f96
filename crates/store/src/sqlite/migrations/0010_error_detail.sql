-- What operators are told of a failure where it says more than `error_message`, which whoever may see the job
-- reads: addresses, paths and settings. Written by every failure, so it belongs to the last one; read of DEAD
-- chunks only.
ALTER TABLE job_chunk ADD COLUMN error_detail TEXT;
