-- What this transaction has planned to read, and what is wrong with each. $1: the relations that were locked
-- when the query was only rewritten, not planned. $2, $3, $4: schema (or null), name and manner of everything in
-- the query's text that may call a function.
--
-- `kind` is `guarded` for a table whose row-level security is active for the current user, `bare` for one without
-- any, `open` for one whose row-level security is not active (the current user owns it), `child` for one that has
-- it but is read through a parent without (a child's policies are not looked at then), `view` for a view that
-- reads a table with it as somebody else, whose policies are others or none, `stored` for a materialized view,
-- which keeps such a table's rows without any policies, and `definer` for a function that runs with its owner's
-- rights. A child that is read through its parent is under the parent's policies and needs none; it is then
-- locked by the planner only. The tables that a materialized view was made from are not planned to be read, so
-- that they have to be looked for.
with recursive seen as materialized (
  select distinct c.oid, c.relkind, c.relowner, c.relrowsecurity, c.relforcerowsecurity, c.reloptions,
         c.oid = any ($1::oid[]) as named, pg_catalog.format('%I.%I', n.nspname, c.relname) as name
  from pg_catalog.pg_locks as l
  join pg_catalog.pg_class as c on c.oid = l.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  where l.locktype = 'relation' and l.pid = pg_catalog.pg_backend_pid()
    and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = pg_catalog.current_database())
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and n.nspname <> 'pg_catalog' and n.nspname <> 'information_schema'
), parents as (
  select i.inhrelid as child, p.relrowsecurity, p.name
  from pg_catalog.pg_inherits as i join seen as p on p.oid = i.inhparent
), stored as (
  select v.oid as made, v.oid as source from seen as v where v.relkind = 'm'
  union
  select s.made, d.refobjid
  from stored as s
  join pg_catalog.pg_rewrite as r on r.ev_class = s.source
  join pg_catalog.pg_depend as d
    on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
   and d.refclassid = 'pg_catalog.pg_class'::regclass
), definers as (
  select p.oid, p.pronargs, p.pronargdefaults, p.proargtypes, p.proname, n.nspname,
         pg_catalog.format('%I.%I', n.nspname, p.proname) as name
  from pg_catalog.pg_proc as p
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  where p.prosecdef
)
select case when not t.relrowsecurity then 'bare'
            when pg_catalog.row_security_active(t.oid) then 'guarded'
            else 'open' end as kind, t.name, null as other, null as owner
from seen as t
where t.relkind <> 'v' and (t.named or not exists (select from parents as p where p.child = t.oid))
union all
select 'child', t.name, p.name, null
from seen as t join parents as p on p.child = t.oid
where t.relrowsecurity and not p.relrowsecurity
union all
select distinct 'view', v.name, t.name, o.rolname::text
from seen as v
join pg_catalog.pg_roles as o on o.oid = v.relowner
join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
join pg_catalog.pg_depend as d
  on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
 and d.refclassid = 'pg_catalog.pg_class'::regclass
join seen as t on t.oid = d.refobjid and t.relrowsecurity
where v.relkind = 'v'
  and not exists (
    select from pg_catalog.pg_options_to_table(v.reloptions) as x
    where x.option_name = 'security_invoker' and x.option_value::boolean)
  and (o.rolname <> current_user or o.rolsuper or o.rolbypassrls
    or (pg_catalog.pg_has_role(o.oid, t.relowner, 'USAGE') and not t.relforcerowsecurity))
union all
select distinct 'stored', v.name, pg_catalog.format('%I.%I', n.nspname, t.relname), null
from stored as s
join seen as v on v.oid = s.made
join pg_catalog.pg_class as t on t.oid = s.source and t.relrowsecurity
join pg_catalog.pg_namespace as n on n.oid = t.relnamespace
union all
select distinct 'definer', f.name, v.name, null
from seen as v
join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
join pg_catalog.pg_depend as d
  on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
 and d.refclassid = 'pg_catalog.pg_proc'::regclass
join definers as f on f.oid = d.refobjid
where v.relkind = 'v'
union all
-- Names are compared as the server would fold and cut them, or more loosely. `row.name` calls a function of one
-- argument, but a column of that name goes first; if there is one, only functions that take a row are in doubt.
select distinct 'definer', f.name, null, null
from unnest($2::text[], $3::text[], $4::text[]) as u (schema, name, manner)
join definers as f on pg_catalog.lower(f.proname::text) = pg_catalog.lower(u.name::name::text)
where case when u.schema is null then f.nspname = any (pg_catalog.current_schemas(true))
           else pg_catalog.lower(f.nspname::text) = pg_catalog.lower(u.schema::name::text) end
  and (u.manner = 'call'
    or f.pronargs >= 1 and f.pronargs - f.pronargdefaults <= 1 and (
      u.manner = 'value'
      or exists (select from pg_catalog.pg_type as t
                 where t.oid = f.proargtypes[0] and t.typtype in ('c', 'd', 'p'))
      or not exists (select from pg_catalog.pg_attribute as a join seen as t on t.oid = a.attrelid
                     where a.attname = f.proname)))
order by 1, 2, 3
