%% Sees every start and every end of one script, in order, knows the plans of starts, and keeps the gate.
-module(raptor_otp_watch).
-export([start/1, ask/2]).

start(Runner) ->
    State = #{runner => Runner, gate => none, drain => none, tries => #{}, births => #{},
              names => #{}, current => #{}, alive => #{}, log => []},
    spawn_link(fun() -> watch(State) end).

%% drain: the log since the last time, the names of processes, and the inner supervisor.
%% orphans: answered when no child outlives its parent. inner, {current, Id}: a process.
ask(Watch, What) ->
    Watch ! {What, self()},
    receive {Watch, What, Reply} -> Reply end.

watch(S) ->
    watch(receive Message -> seen(Message, S) end).

seen({start, From, _, Id, _}, #{gate := Id, runner := Runner} = S) ->
    Runner ! gated,
    S#{gate := {From, Id}};
seen({start, From, Key, Id, Plan}, #{tries := Tries} = S) ->
    N = maps:get(Key, Tries, 0) + 1,
    Outcome = case N > length(Plan) of true -> ok; false -> lists:nth(N, Plan) end,
    outcome(From, Id, Outcome, S#{tries := Tries#{Key => N}});
seen({gate, Id}, S) ->
    S#{gate := Id};
seen({release, Outcome}, #{gate := {From, Id}} = S) ->
    outcome(From, Id, Outcome, S#{gate := none});
seen({up, Pid, Parent, Id}, #{births := Births, current := Current} = S) ->
    N = maps:get(Id, Births, 0) + 1,
    S1 = known(Pid, Parent, Id, N, S#{births := Births#{Id => N}, current := Current#{Id => Pid}}),
    Parent ! {self(), up, Pid},
    note([started, Id, N], S1);
seen({sup, Pid}, #{runner := Runner} = S) ->
    known(Pid, Runner, sup, 1, S);
seen({refused, Id}, S) ->
    note([refused, Id], S);
seen({'DOWN', _, process, Pid, Reason}, #{names := Names, alive := Alive} = S) ->
    {Id, N} = maps:get(Pid, Names),
    drained(note([ended, Id, N, word(Reason)], S#{alive := maps:remove(Pid, Alive)}));
seen({What, From}, S) ->
    told(What, From, S).

outcome(From, Id, Outcome, S) ->
    From ! {self(), outcome, Outcome},
    case Outcome of
        ok -> S;
        ignore -> note([ignored, Id], S);
        error -> note([refused, Id], S)
    end.

known(Pid, Parent, Id, N, #{names := Names, alive := Alive} = S) ->
    monitor(process, Pid),
    S#{names := Names#{Pid => {Id, N}}, alive := Alive#{Pid => Parent}}.

note(Entry, #{log := Log} = S) ->
    S#{log := [Entry | Log]}.

told(orphans, From, S) ->
    drained(S#{drain := From});
told(drain, From, #{log := Log, names := Names} = S) ->
    From ! {self(), drain, {lists:reverse(Log), Names, inner(S)}},
    S#{log := []};
told(inner, From, S) ->
    From ! {self(), inner, inner(S)},
    S;
told({current, stranger} = What, From, #{runner := Runner} = S) ->
    From ! {self(), What, Runner},
    S;
told({current, Id} = What, From, #{current := Current} = S) ->
    From ! {self(), What, case Current of #{Id := Pid} -> Pid; _ -> nobody() end},
    S.

nobody() ->
    {Pid, Mon} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Mon, process, Pid, _} -> Pid end.

inner(#{current := #{m := Pid}, alive := Alive}) when is_map_key(Pid, Alive) -> Pid;
inner(_) -> none.

drained(#{drain := none} = S) ->
    S;
drained(#{drain := From, alive := Alive} = S) ->
    Sound = fun(Pid, Parent, Ok) -> Ok andalso is_process_alive(Pid) andalso is_process_alive(Parent) end,
    case maps:fold(Sound, true, Alive) of
        true -> From ! {self(), orphans, ok}, S#{drain := none};
        false -> S
    end.

word({shutdown, term}) -> shutdown_term;
word(Reason) when is_atom(Reason) -> Reason;
word(_) -> other.
