SELECT message_store.write_message(gen_random_uuid()::varchar, ('run-' || :run || 'x' || :client_id)::varchar, 'run.turn_finished'::varchar, '{"x":"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"}'::jsonb, NULL::jsonb, (:n - 1)::bigint);
\set n :n + 1
