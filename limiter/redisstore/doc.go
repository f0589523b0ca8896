// Package redisstore implements a limiter.AdminStore in Redis, so that several processes
// share their counts.
//
// # Guarantees
//
//   - A decision is one script call and atomic: all claims of a request are taken, or
//     none.
//   - No window, by the clock of Redis in whole milliseconds, holds more permits than
//     the rate allows, whatever the number and the clocks of the processes, and also
//     while the rate is changed.
//   - A call ends at the deadline of its context or after Options.Timeout, with an error
//     that wraps limiter.ErrUnavailable. It is sent only once, and never if its caller gave
//     up before. What Redis grants to it later, within a minute, is refunded by its ID, unless
//     another master has replaced it.
//     If the connection is lost or the Store closed before the reply comes, it is unknown
//     whether it was executed; it costs at most its own permits for one window.
//   - Keys are small (128 entries, about 4 KB, at any rate) and expire at most one second
//     after their last permit.
//   - A key that has another type, or data that is not valid, fails only the requests
//     that need it, with an error that says so, although other requests are sent in the
//     same call. Nothing is taken for such a request; Reset deletes the key.
//   - Requests that arrive while script calls are in progress are sent together in the
//     next call, and decided in order, as if they were sent one by one. An idle store
//     sends immediately.
//   - A caller whose context ends returns immediately and delays no other caller.
//   - A refusal of Redis is cached until the time it names, and applies whatever else
//     a request claims. Refunds, grants, resets and ended bans of all processes are
//     received; while they cannot be, nothing is cached.
//   - In a cluster each node has its own connection and queue, and from Redis 7.0 on one
//     script call for all its slots, and one for its refunds. A request over keys of several
//     masters is taken on all of them at the same time, and refunded by ID if one refuses.
//   - While Redis is unreachable and another store decides in its place, no decision is
//     sent to Redis. One small call at a time finds out when it is reachable again. Then
//     it receives what was granted meanwhile, before any decision that this affects and,
//     after an outage, before all decisions.
//
// Not guaranteed: Redis replicates asynchronously, so a failover may lose the last
// permits. If the clock of Redis is set forward, permits expire earlier by that time.
//
// # The path of a decision
//
// Take uses one connection to each master, and another one for limiters shared with
// Redisson (pipeline.go). The go-redis client opens it, so it is found, authenticated
// and encrypted like the client's own connections, but commands do not go through the
// client:
//
//	queue.go     calls that wait and calls that are not answered; a call is claimed before it is answered;
//	             refunds of what was granted after the caller had given up; retries through
//	             the client: an unknown script, a slot that has moved
//	pipeline.go  the writer: the waiting calls become one batch, written from one buffer;
//	             the reader: writes the replies directly into the calls
//	reserve.go   claims on several masters, and groups of claims that are decided beside group 0, if it is granted
//	internal/wire  connections, the encoding of commands and the RESP2 and RESP3 parser
//
// Calls and batches are reused, so that a usual decision does not allocate. Calls have no
// timers: one sweep ends all calls whose deadline has passed. A connection on which Redis does not
// reply in time is one failure for the circuit breaker, however many calls were in flight; from then on
// it is only read, for what late replies grant is refunded, and another one is opened for calls. The
// outcome of calls that were in flight on a lost connection is
// unknown, and they are not sent again; calls that were not sent use the next
// connection. A connection that was idle for 10 s is pinged before calls are sent, and replaced if there is
// no reply within a quarter of their timeout: a firewall may have forgotten it. Everything else (Peek, reports, the
// handles on Redisson's limiters) is a command of the client.
//
// # Layout
//
// A token bucket named L, on a key whose hexadecimal form is K, is a Redisson
// RRateLimiter of the name PREFIX:{K}:L, without its config hash:
//
//	PREFIX:{K}:L:value    string  permits left
//	PREFIX:{K}:L:permits  zset    score: ms when taken; member: below
//	PREFIX:{K}:L:base     string  our own: what value was counted for, or a ban
//
// A member is one byte with the length of an id, the id, and a count of 4 bytes,
// lowest first. The id of a decision has 8 bytes; Redisson reads any length. Value and
// permits live as long as a permit is out, so without both nothing has to be read.
//
// A sliding log, a fixed or sliding window, GCRA and a cooldown have one key. Windows of
// limits whose names differ only in what stands behind the last colon, as those of one
// list of rates, share it: L is BOX:TAG, and the string holds the window of each tag.
//
//	PREFIX:{K}:BOX{A}    string  numbers, lowest byte first
//
// A is the algorithm: 1 fixed_window, 2 sliding_window, 3 gcra, 7 sliding_log, c cooldown.
// A ban and the marks of refunds, if there are any, follow the numbers:
// see general/packed.lua, and the files of the algorithms. A request over several of
// them reads and writes one string. Before, A of a cooldown was 6; before that, the
// string's name ended in :{ALGORITHM}:state, and earlier yet the counters and cooldowns had
// value, permits and base. Those keys are not read any more and expire: their limits
// start from zero with the upgrade, and while both versions run they count separately.
//
// Concurrent and distinct limits have the keys of a token bucket below
// PREFIX:{K}:L:{ALGORITHM}, and no base unless they are banned or long. A distinct one has a hash
// of uses in place of the value, and its permits are values by their last use: so a decision costs the
// same however many values there are. They are sorted sets: nearly every permit of theirs is
// refunded, renewed or used again by its ID, and finding one in a string takes Lua 0.5 µs
// an entry. With 10 permits taken, taking and refunding one costs Redis the same in
// both, with 32 a quarter more in a string and with 128 three times as much, while a set of
// a few takes twice the memory. A layout that depends on the number of permits would lose
// their holders when that number is edited. The keys of a PerClient limit end with a colon
// and the client's UUID.
//
// A claim with a RedissonName uses only the keys of that limiter, and has a script call
// of its own, whose cost is bounded whatever other programs have written. Together with
// other claims it is taken separately, like a key in a cluster. A limiter that cannot be
// used is ErrRedisson, for that limiter alone. Java programs do not publish when they
// release permits, so refusals are cached for 100 ms only.
//
// What a request took of Noted limits is named in a note, a string below the subject:
//
//	PREFIX:{SUBJECT}:BOX{n}    string  44 bytes for each permit, at most 64 of them: lua/general/note.lua
//
// BOX is as above, and the note lives as long as its last permit. On a single Redis one script takes
// and notes, and one script returns all that a note names. In a cluster these are two steps each:
// permits are taken, then noted, and the note is deleted before they are refunded by ID. A process
// that dies in between leaves permits that are taken until they expire.
//
// A member of a distinct limit is 8 bytes of the value. The hash has, by these, the uses of a value:
// lua/algorithm/distinct.lua. Earlier versions had each use as a member, of 16 bytes; a script that
// meets one moves it into the hash. While both run on one Redis, the older counts fewer values.
//
// # Scripts
//
// The folder lua has their files, each of which is Lua by itself; package internal/scripts says
// which of them a script has, one after another. Print one as Redis runs it:
//
//	go run ./limiter/redisstore/lua many gcra
//	go run ./limiter/redisstore/lua refund gcra sliding_log
//
// What decides most requests of one algorithm is made of three parts:
//
//	limit.lua           local variables through which the others pass values to each other
//	algorithm/NAME.lua  open reads what is left, take takes from it, save makes the new state
//	                    (write, with three keys), wait says how long until enough is left
//	one.lua, many.lua   one request of one claim; several requests, or several claims
//	                    (with three keys one_set.lua and many_set.lua)
//
// In these scripts the functions without parameters that are called on a line of their own
// are inlined, because a call that passes values costs as much as the work that it does. So
// they see the locals around the call, and no local may hide one that files share
// (lua_test.go). An algorithm sets fast to false if a ban, a refund, a clock that was set
// back, a key of another type or too many entries need more than that. Then nothing of the
// request is written, and the function general decides it, which the files of the folder
// general define. Requests that ask several algorithms at once, and the commands of the
// folder command, are general scripts too. A command is made when it is first sent,
// for the algorithms that its windows have; what decides requests is made at the start, and
// take for all algorithms, so that no request waits for another mixture. Functions that a script never calls are left out, so the rest of an
// algorithm's file costs a fast script nothing.
//
// Redis knows a script by its hash: testdata/scripts.txt shows in review when one changes. What
// a decision costs is measured in test/bench/redis.
//
// # Faults of such limiters, and what keeps them out
//
//	a slot moves: what was taken lost   a script never writes a key that it emptied     TestStore_OnACluster
//	a slot moves: half of a call taken  all keys are asked for before one is written    TestStore_SlotsMoveUnderLoad
//	keys that live for ever             every write sets the time to live of all keys   TestKeys_LeaveByThemselves
//	looking writes a key that stays     peek writes nothing                             TestPeek_WritesNothing
//	config gone, so an error            the config travels with each call               TestStore_HealsLostKeys
//	spent value without entries: error  no entries means that nothing is out            TestStore_HealsLostKeys
//	too many results to unpack          ranges are removed by score, lists in parts     TestStore_ForeignCrowd
//	a call sent twice drifts for ever   value and entries change together; recounted    TestStore_TwiceIsOnce, TestStore_SameCallTwice
//	a wrong value stays wrong           it is counted again once a window               TestStore_HealsDrift
//	given back twice: more than rate    refund removes the entry, by id, once           limitertest RefundOnce
//	release() makes more than the rate  it takes permits out of the entries             TestRateLimiter_Releases
//	proxies' clocks differ              Redis's TIME, nothing else                      TestStore_ManyCallers
//	cost 0, negative or huge            refused before Redis; foreign ones count 0      limitertest BadClaims, TestStore_ForeignNegative
//	a new rate resets or is ignored     value is counted again for the new rate         TestRateLimiter_ChangesItsRate
//	counts of dead clients stay         counts belong to no client                      TestKeys_LeaveByThemselves
//	wait only until the first permit    the wait walks as far as the cost needs         limitertest WaitIsExact
//	waiters starve behind small ones    first come, first served                        TestRateLimiter_Waits
//	memory grows with the rate          entries are merged into 64 parts of a window    TestKeys_StaySmall
//	no way to look                      Peek                                            limitertest Random
//	which algorithm is it?              a log of permits over a sliding window          package limiter
//	braces split a limiter's keys       names hold no braces, the key is hexadecimal    limitertest BadClaims
//	value lost means a full budget      value is counted from the entries               TestStore_HealsLostKeys
package redisstore
