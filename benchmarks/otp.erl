%% What Erlang/OTP needs for the same: each subject prints lines of a name and its samples, in seconds unless named.
-module(otp).
-behaviour(gen_server).
-export([main/1, start_link/0, start_crashing/0]).
-export([init/1, handle_call/3, handle_cast/2]).

main(Words) ->
    try measure(Words) of
        _ -> halt(0)
    catch
        Class:Reason:Stack ->
            io:format("~p~n", [{Class, Reason, Stack}]),
            halt(1)
    end.

measure(["call", Rounds, Count]) ->
    Messages = list_to_integer(Count),
    {ok, Pid} = start_link(),
    Call = fun() -> repeat(Messages, fun() -> gen_server:call(Pid, count) end) end,
    tell("call", [seconds(Call) / Messages || _ <- warm(Rounds, Call)]);
measure(["cast", Rounds, Count]) ->
    Messages = list_to_integer(Count),
    {ok, Pid} = start_link(),
    Cast = fun() ->
        repeat(Messages, fun() -> gen_server:cast(Pid, count) end),
        gen_server:call(Pid, count, infinity)
    end,
    tell("cast", [seconds(Cast) / (Messages + 1) || _ <- warm(Rounds, Cast)]);
measure(["memory", Count]) ->
    Actors = list_to_integer(Count),
    fill("bare", Actors, fun() -> {ok, _} = start_link() end),
    {ok, Supervisor} = supervisor:start_link(?MODULE, simple),
    fill("supervised", Actors, fun() -> {ok, _} = supervisor:start_child(Supervisor, []) end);
measure(["restart", Count]) ->
    register(bench, self()),
    {ok, _} = supervisor:start_link(?MODULE, crashing),
    receive {started, _} -> ok end,
    logger:set_primary_config(level, none),
    restart("log_off", list_to_integer(Count)),
    ok = logger:remove_handler(default),
    ok = logger:add_handler(default, logger_std_h, #{config => #{file => "/dev/null"}}),
    logger:set_primary_config(level, notice),
    restart("log_on", list_to_integer(Count));
measure(["stop", Rounds | Counts]) ->
    process_flag(trap_exit, true),
    Kinds = [{Kind, list_to_integer(Count)} || Kind <- ["Supervisor", "DynamicSupervisor"], Count <- Counts],
    All = [{Kind, Count, stop(Kind, Count)} || _ <- lists:seq(1, list_to_integer(Rounds)), {Kind, Count} <- Kinds],
    [tell(io_lib:format("~s_~b", [Kind, Count]), [S || {K, C, S} <- All, K =:= Kind, C =:= Count])
     || {Kind, Count} <- Kinds].

%% One round that is not counted, and the rounds.
warm(Rounds, Work) ->
    Work(),
    lists:seq(1, list_to_integer(Rounds)).

repeat(0, _) -> ok;
repeat(Times, Work) -> Work(), repeat(Times - 1, Work).

seconds(Work) ->
    Started = erlang:monotonic_time(nanosecond),
    Work(),
    (erlang:monotonic_time(nanosecond) - Started) / 1.0e9.

tell(Name, Samples) ->
    io:format("~s~s~n", [Name, [io_lib:format(" ~.12g", [float(Sample)]) || Sample <- Samples]]).

%% erlang:memory is what the processes take, without what the allocators keep in reserve.
fill(Name, Count, Start) ->
    erlang:garbage_collect(),
    Before = erlang:memory(total),
    Took = seconds(fun() -> repeat(Count, Start) end),
    erlang:garbage_collect(),
    tell(Name ++ "_kB", [(erlang:memory(total) - Before) / Count / 1000]),
    tell(Name ++ "_start_s", [Took]).

%% In microseconds, from just before the exit to the first line of the next init.
restart(Name, Count) ->
    Crash = fun() ->
        gen_server:cast(crashing, crash),
        receive {crashing, From} -> ok end,
        receive {started, To} -> (To - From) / 1000 end
    end,
    repeat(100, Crash),
    tell(Name, [Crash() || _ <- lists:seq(1, Count)]).

stop(Kind, Count) ->
    {ok, Supervisor} = case Kind of
        "Supervisor" -> supervisor:start_link(?MODULE, {static, Count});
        "DynamicSupervisor" -> supervisor:start_link(?MODULE, simple)
    end,
    Kind =:= "DynamicSupervisor" andalso repeat(Count, fun() -> {ok, _} = supervisor:start_child(Supervisor, []) end),
    seconds(fun() ->
        exit(Supervisor, shutdown),
        receive {'EXIT', Supervisor, shutdown} -> ok end
    end).

start_link() -> gen_server:start_link(?MODULE, counter, []).

start_crashing() -> gen_server:start_link({local, crashing}, ?MODULE, crash, []).

init(counter) -> {ok, 0};
init(crash) ->
    bench ! {started, erlang:monotonic_time(nanosecond)},
    {ok, 0};
init(crashing) ->
    {ok, {#{intensity => 1000000000, period => 1}, [#{id => crashing, start => {?MODULE, start_crashing, []}}]}};
init(simple) ->
    {ok, {#{strategy => simple_one_for_one}, [#{id => counter, start => {?MODULE, start_link, []}}]}};
init({static, Count}) ->
    {ok, {#{}, [#{id => Number, start => {?MODULE, start_link, []}} || Number <- lists:seq(1, Count)]}}.

handle_call(_, _, State) -> {reply, State + 1, State + 1}.

handle_cast(crash, _) ->
    bench ! {crashing, erlang:monotonic_time(nanosecond)},
    exit(crash);
handle_cast(_, State) -> {noreply, State + 1}.
