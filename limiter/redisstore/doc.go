// Package redisstore keeps limiter's counts in Redis, so that many proxies count
// together.
//
// # What it promises
//
//   - One decision is one script call: everything that a request asks for is
//     taken, or nothing. Between reading and writing nobody else comes.
//   - In no window, by Redis's clock in whole milliseconds, are more permits
//     granted than the rate has, whatever the number and the clocks of the
//     proxies, and while the rate is changed.
//   - A call ends when its context or Options.Timeout says so. It is sent once:
//     after a timeout it is unknown whether it was counted, which is
//     limiter.ErrUnavailable, and costs at most its own permits for one window.
//     What was not sent yet when its caller left never is.
//   - Keys are small (128 entries, about 4 KB, at any rate) and leave by
//     themselves one second after the last permit came back, or sooner.
//   - A key of another type, or one that holds what no script writes, fails the
//     requests that ask for it, with an error that says so, and no others, though
//     they travel together. Nothing is taken for such a request; Reset heals it.
//   - Requests that arrive while script calls are under way share the next one,
//     and are decided in order, as if one by one. An idle store sends at once.
//   - A caller whose context ends is released at once, and holds up nobody.
//   - What Redis refused until some time is refused here until then, whatever else
//     the request claims; refunds, grants, resets and lifted bans are heard of from
//     all proxies, and while they cannot be, nothing is remembered.
//   - In a cluster each node has its own connection and queue. A request over several keys is
//     reserved key by key and given back by id if one refuses.
//   - While Redis fails and somebody decides in its place, nothing of that is
//     asked of Redis: one small call at a time finds out when it is back. It hears
//     of what was granted meanwhile before it decides anything that it touches,
//     and, after an absence, before anybody asks at all.
//
// What it does not promise: Redis replicates asynchronously, so a failover may
// forget the last permits; a clock of Redis that is set forward returns permits
// early by as much.
//
// # How a decision travels
//
// Take has one connection to each node that takes writes, and another one for limiters
// that Redisson shares (pipeline.go). The client makes it, so it is found, signed in and
// encrypted as the client's own are, but no command goes through the client:
//
//	queue.go     calls that wait, and those that nobody has answered; who answers one claims it
//	pipeline.go  the writer: what waits becomes one batch, written from one buffer
//	receive.go   the reader: whole numbers, straight into the calls
//	resp.go      what it reads: RESP2 and RESP3
//	dialer.go    connections, one attempt at a time, with pauses between those that fail
//	resend.go    what only the client can do: a script that is not known, a slot that moved
//
// Calls and batches are used again: the usual decision allocates nothing. No call has a
// timer: a sweep for all ends those whose time is over, and gives up a connection on
// which Redis is silent, which is one failure for the breaker however many calls it
// carried. What was in progress on a lost connection is unknown, and is not sent again;
// what was not sent yet goes by the next. Everything else (Peek, Refund, reports, the
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
// There is a ban, and what must be known of refunds, behind the numbers where there is any:
// see box.lua, sliding_log.lua, counter.lua and cooldown.lua. A request over several of
// them reads and writes one string. Before, A of a cooldown was 6; before that, the
// string's name ended in :{ALGORITHM}:state, and earlier yet the counters and cooldowns had
// value, permits and base. What is in those is not read any more and expires: their limits
// start again with the upgrade, and while both versions run each counts by itself.
//
// Concurrent and distinct limits have the keys of a token bucket below
// PREFIX:{K}:L:{ALGORITHM}; a distinct one never writes a value, and neither has a base
// unless it is banned or long. They stay sorted sets: nearly every permit of theirs is given
// back, renewed or used again by its id, and to look for one in a string takes Lua 0.5 µs an
// entry. With 10 permits out, to take one and to give it back costs Redis as much in
// either, with 32 a quarter more in a string and with 128 three times as much, while a set of a
// few takes twice the bytes. A layout that depends on the number of permits would forget
// who holds them when that is edited. What each client counts by itself ends with a colon and
// the client's UUID.
//
// A claim that names a limiter of Redisson uses that one's keys and nothing else, and
// is a script call of its own, bounded whatever others have left there: beside other
// claims it is reserved by itself, as a key of a cluster is. What cannot be used is
// ErrShared, for that limiter alone. Java programs make room without telling, so
// refusals are remembered for 100 ms only.
//
// A member of a distinct limit is 8 bytes of the value and the 8 of the decision's id
// (zeros: uses that are not given back any more).
//
// # Scripts
//
// Most calls carry requests of one claim each, on different windows, of one algorithm.
// For those there is a script that goes straight on (straight.lua) and decides by itself
// whatever is usual; what only a ban, a refund or a clock that was set back needs, it
// defines when it meets them. A request that comes alone has one without tables (lone.lua).
// Both decide by take_ALGORITHM.lua and read windows by keys_*.lua. Requests of several
// claims have one too (several.lua, or several_boxes.lua with plain_*.lua, and
// many_ALGORITHM.lua), and so have several on one key (again.lua); all others have one that
// knows all. What some of them have in common are sections of pieces.lua; script_parts.go
// joins them.
// What a decision costs is measured in test/bench/redis.
//
// # Faults of such limiters, and what keeps them out
//
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
//	no way to look                      Peek                                            limitertest Peek
//	which algorithm is it?              a log of permits over a sliding window          package limiter
//	braces split a limiter's keys       names hold no braces, the key is hexadecimal    limitertest BadClaims
//	value lost means a full budget      value is counted from the entries               TestStore_HealsLostKeys
package redisstore
