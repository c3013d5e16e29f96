-- A source to try it with: 20 keys, 30 days, 100 rows each.
CREATE DATABASE warehouse;
\connect warehouse
CREATE TABLE positions (
    key            text NOT NULL,
    effective_date date NOT NULL,
    position       integer NOT NULL,
    amount         numeric(18, 2) NOT NULL,
    PRIMARY KEY (key, effective_date, position)
);
INSERT INTO positions
SELECT 'KEY' || k, date '2025-01-01' + d, p, round((random() * 1000000)::numeric, 2)
FROM generate_series(1, 20) AS k, generate_series(0, 29) AS d, generate_series(1, 100) AS p;
