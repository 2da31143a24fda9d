%% Runs scripts on OTP's own supervisor and writes what it answered.
%% One JSON script a line comes in and one JSON line of steps goes out; see scripts.py for both.
-module(raptor_otp).
-behaviour(supervisor).
-export([main/1, init/1, start_child/2]).

%% Many scripts at once, so that the milliseconds that some wait for a hanging child overlap.
-define(LANES, 64).
-define(SCRIPT_MS, 20000).

main([In, Out]) ->
    logger:set_primary_config(level, none),
    {ok, Text} = file:read_file(In),
    Lines = [Line || Line <- binary:split(Text, <<"\n">>, [global]), Line =/= <<>>],
    Answers = lanes(lists:enumerate(Lines), #{}, #{}),
    ok = file:write_file(Out, [[maps:get(N, Answers), $\n] || {N, _} <- lists:enumerate(Lines)]),
    halt(0).

lanes([], Running, Answers) when map_size(Running) =:= 0 ->
    Answers;
lanes([{N, Line} | Rest], Running, Answers) when map_size(Running) < ?LANES ->
    Self = self(),
    {Pid, Mon} = spawn_monitor(fun() -> Self ! {answer, self(), run(Line)} end),
    Timer = erlang:send_after(?SCRIPT_MS, Self, {late, Pid}),
    lanes(Rest, Running#{Pid => {N, Mon, Timer}}, Answers);
lanes(Rest, Running, Answers) ->
    receive
        {answer, Pid, Steps} -> settled(Pid, json(Steps), Rest, Running, Answers);
        {late, Pid} -> exit(Pid, kill), settled(Pid, broken(late), Rest, Running, Answers);
        {'DOWN', _, process, Pid, Why} -> settled(Pid, broken(Why), Rest, Running, Answers)
    end.

settled(Pid, Answer, Rest, Running, Answers) ->
    case maps:take(Pid, Running) of
        {{N, Mon, Timer}, Others} ->
            demonitor(Mon, [flush]),
            erlang:cancel_timer(Timer),
            lanes(Rest, Others, Answers#{N => Answer});
        error ->
            lanes(Rest, Running, Answers)
    end.

%% A string instead of steps: the rig failed, and nothing is to be compared.
broken(Why) ->
    Text = io_lib:format("~0p", [Why]),
    json(list_to_binary([C || C <- lists:flatten(Text), C =/= $", C =/= $\\])).

%% One script: this process is the supervisor's parent.

run(Line) ->
    process_flag(trap_exit, true),
    {[_Seed, Tree, Ops], _} = value(Line),
    Watch = raptor_otp_watch:start(self()),
    case supervisor:start_link(?MODULE, {Watch, Tree}) of
        {ok, Sup} ->
            Watch ! {sup, Sup},
            First = step(ok, Watch, Sup),
            [First | steps(Ops, Watch, Sup)];
        {error, Why} ->
            {Log, _, _} = raptor_otp_watch:ask(Watch, drain),
            [[[error | start_error(Why)], dead, [], [], [], Log]]
    end.

steps([], _, _) ->
    [];
steps([Op | Ops], Watch, Sup) ->
    Alive = is_process_alive(Sup),
    Step = step(do(Op, Watch, Sup), Watch, Sup),
    %% One request to a dead supervisor is enough.
    [Step | case Alive of true -> steps(Ops, Watch, Sup); false -> [] end].

step(Answer, Watch, Sup) ->
    settle(Watch, Sup),
    {Log, Names, Inner} = raptor_otp_watch:ask(Watch, drain),
    [shown(Answer, Names), state(Sup, Log), listed(Sup, Names), counted(Sup),
     case Inner of none -> []; _ -> [listed(Inner, Names), counted(Inner)] end,
     Log].

state(Sup, Log) ->
    case is_process_alive(Sup) of
        true -> alive;
        false -> case [R || [ended, sup, _, R] <- Log] of [R] -> R; [] -> dead end
    end.

%% Nothing restarts, in either supervisor, and no child outlives its parent.
%% A start that waits at the gate ends this early: {gated, the request that waits behind it}.
settle(Watch, Sup) ->
    Inner = raptor_otp_watch:ask(Watch, inner),
    case calm([Inner, Sup], fun ask_or_gate/2) of
        true ->
            _ = raptor_otp_watch:ask(Watch, orphans),
            case raptor_otp_watch:ask(Watch, inner) of
                Inner -> settled;
                _ -> settle(Watch, Sup)
            end;
        false -> settle(Watch, Sup);
        Gated -> Gated
    end.

calm([], _) -> true;
calm([none | Sups], Ask) -> calm(Sups, Ask);
calm([Sup | Sups], Ask) ->
    case Ask(Sup, which_children) of
        {gated, _} = Gated -> Gated;
        {error, _} -> calm(Sups, Ask);
        Children ->
            case lists:any(fun({_, Pid, _, _}) -> Pid =:= restarting end, Children) of
                true -> false;
                false -> calm(Sups, Ask)
            end
    end.

ask_or_gate(Sup, Request) ->
    wait_or_gate(gen_server:send_request(Sup, Request)).

wait_or_gate(Id) ->
    receive
        gated -> {gated, Id};
        Message ->
            case gen_server:check_response(Message, Id) of
                no_reply -> wait_or_gate(Id);
                {error, {Why, _}} -> {error, Why};
                {reply, Reply} -> Reply
            end
    end.

ask(Sup, Request) ->
    answer(gen_server:send_request(Sup, Request)).

answer(Id) ->
    case gen_server:receive_response(Id, infinity) of
        {reply, Reply} -> Reply;
        {error, {Why, _}} -> {error, Why}
    end.

%% Operations.

do([gate, Held, Id, Reason, _, Outcome, During], Watch, Sup) ->
    Watch ! {gate, Id},
    First = leave(Id, Reason, Watch, Sup),
    case settle(Watch, Sup) of
        settled ->
            Watch ! {gate, none},
            [First, ungated];
        {gated, Behind} ->
            %% In its own start a supervisor runs at once with the one that starts it: nothing to compare.
            Sent = case Held =:= m andalso raptor_otp_watch:ask(Watch, inner) =:= none of
                true -> [starting];
                false -> [aside(Op, Held, Watch, Sup) || Op <- During]
            end,
            Watch ! {release, Outcome},
            _ = answer(Behind),
            [First | [case S of {sent, R} -> answer(R); _ -> S end || S <- Sent]]
    end;
do([exit, _, Id, Reason | _], Watch, Sup) ->
    leave(Id, Reason, Watch, Sup);
do(Op, Watch, Sup) ->
    {On, Request} = request(Op, Watch, Sup),
    ask(On, Request).

%% Nothing waits for the supervisor that is held at the gate; the other one is let come to rest.
aside([exit, _, sup, shutdown | _], _, _, Sup) ->
    exit(Sup, shutdown),
    ok;
aside([exit, On, Id, Reason | _], Held, Watch, Sup) ->
    Answer = leave(Id, Reason, Watch, Sup),
    rest(On, Held, Watch),
    _ = raptor_otp_watch:ask(Watch, orphans),
    Answer;
aside([_, Held | _] = Op, Held, Watch, Sup) ->
    {Pid, Request} = request(Op, Watch, Sup),
    {sent, gen_server:send_request(Pid, Request)};
aside([_, On | _] = Op, Held, Watch, Sup) ->
    Answer = do(Op, Watch, Sup),
    rest(On, Held, Watch),
    Answer.

rest(Held, Held, _) -> ok;
rest(On, Held, Watch) ->
    case calm([raptor_otp_watch:ask(Watch, inner)], fun ask/2) of
        true -> ok;
        false -> rest(On, Held, Watch)
    end.

request([Kind, On, Target, _, Child | _], Watch, Sup) ->
    Pid = case On of sup -> Sup; _ -> raptor_otp_watch:ask(Watch, {current, On}) end,
    {Pid, case Kind of
        start_child -> {start_child, spec(Watch, Child)};
        start_dynamic -> {start_child, [Child]};
        terminate_dynamic -> {terminate_child, raptor_otp_watch:ask(Watch, {current, Target})};
        which_children -> which_children;
        count_children -> count_children;
        _ -> {Kind, Target}
    end}.

leave(sup, Reason, _, Sup) ->
    Mon = monitor(process, Sup),
    case Reason of
        kill -> exit(Sup, kill);
        shutdown -> exit(Sup, shutdown);
        normal -> catch gen_server:stop(Sup)
    end,
    gone(Mon);
leave(Id, Reason, Watch, _) ->
    Pid = raptor_otp_watch:ask(Watch, {current, Id}),
    Mon = monitor(process, Pid),
    case {Reason, raptor_otp_watch:ask(Watch, inner)} of
        {kill, _} -> exit(Pid, kill);
        {_, Pid} -> catch gen_server:stop(Pid, reason(Reason), infinity);
        _ -> Pid ! {leave, reason(Reason)}
    end,
    gone(Mon).

gone(Mon) ->
    receive
        {'DOWN', Mon, process, _, noproc} -> noproc;
        {'DOWN', Mon, process, _, _} -> ok
    end.

reason(term) -> {shutdown, term};
reason(Reason) -> Reason.

%% What the supervisor is given.

init({Watch, [Strategy, Intensity, Period, Auto, Children]}) ->
    {ok, {#{strategy => Strategy, intensity => Intensity, period => Period,
            auto_shutdown => Auto},
          [spec(Watch, Child) || Child <- Children]}}.

spec(Watch, [_, Id, Restart, Shutdown, Significant, Type | _] = Child) ->
    Args = case Id of template -> [Watch]; _ -> [Watch, Child] end,
    #{id => Id, start => {?MODULE, start_child, Args}, restart => Restart,
      shutdown => Shutdown, significant => Significant, type => Type}.

%% Called by the supervisor, and waits inside it. The watch knows the plan of starts.
start_child(Watch, [Key, Id, _, _, _, _, Plan, Stop, Inner]) ->
    Watch ! {start, self(), Key, Id, Plan},
    case receive {Watch, outcome, Outcome} -> Outcome end of
        ok when Inner =:= [] ->
            Parent = self(),
            Pid = spawn_link(fun() -> child(Watch, Parent, Id, Stop) end),
            receive {Watch, up, Pid} -> {ok, Pid} end;
        ok ->
            start_inner(Watch, Id, Inner);
        ignore -> ignore;
        error -> {error, refused}
    end.

start_inner(Watch, Id, Tree) ->
    case supervisor:start_link(?MODULE, {Watch, Tree}) of
        {ok, Pid} ->
            Watch ! {up, Pid, self(), Id},
            receive {Watch, up, Pid} -> {ok, Pid} end;
        Error ->
            Watch ! {refused, Id},
            Error
    end.

child(Watch, Parent, Id, Stop) ->
    process_flag(trap_exit, true),
    Watch ! {up, self(), Parent, Id},
    receive
        {leave, Reason} -> exit(Reason);
        {'EXIT', Parent, shutdown} -> stop(Stop, Parent);
        {'EXIT', Parent, Reason} -> exit(Reason)
    end.

stop(obey, _) -> exit(shutdown);
stop(slow, Parent) -> receive {'EXIT', Parent, Reason} -> exit(Reason) after 2 -> exit(shutdown) end;
stop(hang, Parent) -> receive {'EXIT', Parent, Reason} -> exit(Reason) end;
stop(Stop, _) -> exit(reason(Stop)).

%% Answers, as lists of words and numbers.

listed(Sup, Names) ->
    shown(ask(Sup, which_children), Names).

counted(Sup) ->
    shown(ask(Sup, count_children), #{}).

shown([{specs, Specs}, {active, Active}, {supervisors, Supers}, {workers, Workers}], _) ->
    [Specs, Active, Supers, Workers];
shown([{_, _, _, _} | _] = Children, Names) ->
    [shown(Child, Names) || Child <- Children];
shown({undefined, restarting, Type, _}, _) -> [dynamic, restarting, Type];
shown({undefined, undefined, Type, _}, _) -> [dynamic, undefined, Type];
shown({undefined, Pid, Type, _}, Names) ->
    {Id, N} = maps:get(Pid, Names),
    [Id, N, Type];
shown({Id, Pid, Type, _}, Names) when is_pid(Pid) ->
    {_, N} = maps:get(Pid, Names),
    [Id, N, Type];
shown({Id, State, Type, _}, _) ->
    [Id, State, Type];
shown({ok, Pid}, Names) when is_pid(Pid) ->
    {Id, N} = maps:get(Pid, Names),
    [ok, Id, N];
shown({ok, undefined}, _) -> [ok, undefined];
shown({ok, #{id := Id} = Spec}, _) ->
    #{restart := Restart, shutdown := Shutdown, significant := Significant, type := Type} = Spec,
    [ok, Id, Restart, Shutdown, Significant, Type];
shown({error, {already_started, Pid}}, Names) ->
    {Id, N} = maps:get(Pid, Names),
    [error, already_started, Id, N];
shown({error, {shutdown, term}}, _) -> [error, shutdown_term];
%% A start that failed: by start_child with the specification behind it, by restart_child without.
shown({error, {refused, _}}, _) -> [error, failed];
shown({error, refused}, _) -> [error, failed];
shown({error, {{shutdown, {failed_to_start_child, _, _}}, _}}, _) -> [error, failed];
shown({error, {shutdown, {failed_to_start_child, _, _}}}, _) -> [error, failed];
shown({error, {Kind, _}}, _) -> [error, Kind];
shown({error, Kind}, _) -> [error, Kind];
shown([ok | Answers], Names) -> [ok | [shown(A, Names) || A <- Answers]];
shown([noproc | Answers], Names) -> [noproc | [shown(A, Names) || A <- Answers]];
shown(Word, _) -> Word.

start_error({shutdown, {failed_to_start_child, Id, _}}) -> [failed_to_start_child, Id];
start_error({start_spec, {Kind, _}}) -> [Kind];
start_error({supervisor_data, {Kind, _}}) -> [Kind].

%% JSON: as much of it as scripts use.

json(N) when is_integer(N) -> integer_to_binary(N);
json(Word) when is_atom(Word) -> [$", atom_to_binary(Word), $"];
json(Text) when is_binary(Text) -> [$", Text, $"];
json(List) when is_list(List) -> [$[, lists:join($,, [json(Item) || Item <- List]), $]].

value(<<$[, Rest/binary>>) -> items(Rest, []);
value(<<$", Rest/binary>>) ->
    [Word, More] = binary:split(Rest, <<$">>),
    {binary_to_atom(Word), More};
value(Text) -> number(Text, 0, 1).

items(<<$], Rest/binary>>, Items) -> {lists:reverse(Items), Rest};
items(<<C, Rest/binary>>, Items) when C =:= $,; C =:= $\s -> items(Rest, Items);
items(Text, Items) ->
    {Item, Rest} = value(Text),
    items(Rest, [Item | Items]).

number(<<$-, Rest/binary>>, 0, 1) -> number(Rest, 0, -1);
number(<<C, Rest/binary>>, N, Sign) when C >= $0, C =< $9 -> number(Rest, N * 10 + C - $0, Sign);
number(Rest, N, Sign) -> {N * Sign, Rest}.
