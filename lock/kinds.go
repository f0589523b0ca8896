package lock

import (
	"cmp"
	"context"
	"crypto/sha1" // Redis identifies scripts by it
	"embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"
	"github.com/redis/go-redis/v9"
)

// A scripted is a lockKind of which each call is one script. All kinds are, but those that combine others, and differ
// in their requests alone.
type scripted struct {
	locker *Locker
	// channels are those on which releases are published: one for each lock that is held together, with the index
	// that a script replies.
	channels []string
	// ownChannels means that each waiter has a channel of its own.
	ownChannels bool

	take, prolong, give request
	// look returns the remaining lease in milliseconds, -1 if it has no end, and force releases the lock for all
	// owners and wakes the waiters. Neither is done if the lock is not held. Some kinds have none.
	look, force request
}

// A request is a script with its keys and arguments, of which operands stand for what differs in each call.
type request struct {
	script *script
	keys   []string
	own    func(callParams) string // returns the last key; nil if it is one of keys
	args   []any
}

// An operand returns an argument that differs in each call.
type operand = func(ctx context.Context, l *Locker, c callParams) (any, error)

func ownerID(_ context.Context, _ *Locker, c callParams) (any, error) { return c.owner.id, nil }

// permitID returns the owner as 16 raw bytes.
func permitID(_ context.Context, _ *Locker, c callParams) (any, error) {
	if raw, err := hex.DecodeString(c.owner.id); err == nil {
		return raw, nil
	}
	return []byte(c.owner.id), nil
}

// holdCount returns the number of holds after the call.
func holdCount(_ context.Context, _ *Locker, c callParams) (any, error) { return c.count, nil }

// permitCount returns the number of permits of a semaphore.
func permitCount(_ context.Context, _ *Locker, c callParams) (any, error) { return c.permits, nil }

// leaseTime returns the lease in ms.
func leaseTime(_ context.Context, _ *Locker, c callParams) (any, error) {
	return c.lease.Milliseconds(), nil
}

// queueing returns whether the owner waits in the queue of Redis, which is sent as 1 or 0.
func queueing(_ context.Context, _ *Locker, c callParams) (any, error) { return c.willWait, nil }

// waiterLife returns the ms until a waiter speaks again or gives up.
func waiterLife(_ context.Context, l *Locker, c callParams) (any, error) {
	return min(3*l.pollInterval, cmp.Or(c.timeout, math.MaxInt64)).Milliseconds(), nil
}

// publishVerb returns the command that publishes a release.
func publishVerb(ctx context.Context, l *Locker, _ callParams) (any, error) {
	return l.publishCommand(ctx)
}

// request returns the request of the script with this name.
func (l *Locker) request(script string, keys []string, args ...any) request {
	return request{script: l.scripts[script], keys: keys, args: args}
}

func (k *scripted) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := k.locker.send(ctx, k.take, c)
	switch {
	case err != nil:
		return attemptResult{}, err
	case r.done:
		return attemptResult{held: true, token: r.n}, nil
	case r.n == -3:
		return attemptResult{}, fmt.Errorf("%w: a reader cannot acquire the write lock", ErrNotReentrant)
	}
	a := attemptResult{hub: k.locker.hub, channel: k.channels[min(max(int(r.index)-1, 0), len(k.channels)-1)]}
	if k.ownChannels {
		a.channel += ":" + c.owner.id
	}
	if r.n >= 0 {
		a.wait = time.Duration(max(r.n, 1)) * time.Millisecond // 0 is about to end, not unknown
	}
	return a, nil
}

func (k *scripted) extend(ctx context.Context, c callParams) (bool, error) {
	c.replicas = 0
	r, err := k.locker.send(ctx, k.prolong, c)
	return r.done, err
}

func (k *scripted) release(ctx context.Context, c callParams) (releaseResult, error) {
	c.replicas = 0
	r, err := k.locker.send(ctx, k.give, c)
	if !r.done {
		return releaseResult{}, err
	}
	return releaseResult{held: true, notified: r.n}, err
}

// send runs the script of a request, with WAIT if c has replicas.
func (l *Locker) send(ctx context.Context, q request, c callParams) (reply, error) {
	keys, args := q.keys, make([]any, len(q.args))
	if q.own != nil {
		keys = append(slices.Clip(keys), q.own(c))
	}
	for i, a := range q.args {
		args[i] = a
		if of, is := a.(operand); is {
			var err error
			if args[i], err = of(ctx, l, c); err != nil {
				return reply{}, err
			}
		}
	}
	return q.script.run(ctx, l.rdb, c.replicas, keys, args)
}

// Reentrant returns a reentrant lock, compatible with Redisson's RLock: a hash under name
// with one field, the owner, whose value is the number of holds.
func (l *Locker) Reentrant(name string) *Lock {
	return l.newLock(name, l.reentrant(name), traits{exclusive: true, reentrant: true, publishesForce: true})
}

func (l *Locker) reentrant(name string) *scripted {
	keys, channel := []string{name}, prefixedKey("redisson_lock__channel", name)
	return &scripted{
		locker: l, channels: []string{channel},
		take:    l.request("reentrant_lock", keys, ownerID, holdCount, leaseTime),
		prolong: l.request("reentrant_extend", keys, ownerID, leaseTime),
		give:    l.request("reentrant_unlock", keys, ownerID, holdCount, publishVerb, channel),
		look:    l.request("look", keys, ""),
		force:   l.request("force", keys, publishVerb, channel),
	}
}

// Simple returns the lock that libraries of many languages implement: a string under
// name, created with SET NX PX, whose value is the owner. It is not reentrant, and must
// not share a name with other kinds. Its release is published on "weir_simple:{name}";
// programs that do not subscribe to it have to poll.
func (l *Locker) Simple(name string) *Lock {
	keys, channel := []string{name}, prefixedKey("weir_simple", name)
	return l.newLock(name, &scripted{
		locker: l, channels: []string{channel},
		take:    l.request("simple_lock", keys, ownerID, leaseTime),
		prolong: l.request("simple_extend", keys, ownerID, leaseTime),
		give:    l.request("simple_unlock", keys, ownerID, publishVerb, channel),
		look:    l.request("look", keys, ""),
		force:   l.request("force", keys, publishVerb, channel),
	}, traits{exclusive: true, publishesForce: true})
}

// fairWaitTime is the time after which Redisson skips a waiter, counted from the time of
// the waiter before it. This package uses the same, so that both can share a queue.
const fairWaitTime = 5 * time.Minute

// Fair returns a reentrant lock that is acquired in the order of the requests, across
// processes. It is compatible with Redisson's RFairLock: the hash of a reentrant lock, a
// list of waiters, and a sorted set of the times after which each waiter may be skipped.
//
// A waiter of this package also records, with every attempt, that it is alive, in the
// sorted set "weir_lock_alive:{name}". It is skipped if it has not done so for three poll
// intervals, or if the deadline of its context has passed. A waiter of Redisson that died is
// skipped when its own time is over.
func (l *Locker) Fair(name string) *Lock {
	keys := []string{
		name, prefixedKey("redisson_lock_queue", name), prefixedKey("redisson_lock_timeout", name),
		prefixedKey("weir_lock_alive", name),
	}
	k, skipAfter := l.reentrant(name), fairWaitTime.Milliseconds()
	k.ownChannels = true
	k.take = l.request("fair_lock", keys,
		ownerID, holdCount, leaseTime, queueing, waiterLife, skipAfter, publishVerb, k.channels[0])
	k.give = l.request("fair_unlock", keys, ownerID, holdCount, publishVerb, k.channels[0], skipAfter)
	k.force = l.request("fair_unlock", keys, "", "all", publishVerb, k.channels[0], skipAfter)
	return l.newLock(name, k, traits{
		exclusive: true, reentrant: true, publishesForce: true, noLocalQueue: true, queuesInRedis: true,
	})
}

// Fenced returns a reentrant lock whose holds have a fencing token, which is larger than
// that of every earlier hold, across processes and lost leases. The guarded resource must
// remember the largest token it has seen and reject smaller ones. It is compatible with
// Redisson's RFencedLock.
//
// The last token is stored in "redisson_lock_token:{name}" without expiry. Each token is
// at least the last one plus one, as in Redisson, and at least the server's clock in
// microseconds. So tokens keep increasing after the last one was deleted, evicted or lost
// in a failover, as long as no server's clock is behind it. They are below 2^53.
func (l *Locker) Fenced(name string) *Lock {
	k := l.reentrant(name)
	k.take = l.request("fenced_lock", []string{name, prefixedKey("redisson_lock_token", name)},
		ownerID, holdCount, leaseTime)
	return l.newLock(name, k, traits{exclusive: true, reentrant: true, publishesForce: true})
}

// A ReadWrite is a readers-writer lock: it is held by any number of readers or by one
// writer. It is compatible with Redisson's RReadWriteLock.
//
// A writer may also acquire the read lock, with the same owner ([WithOwner]), and then
// unlock the write lock. So it becomes a reader without another writer in between. A
// reader that acquires the write lock would wait for itself; it gets ErrNotReentrant.
type ReadWrite struct {
	read, write *Lock
}

// ReadWrite returns the read-write lock with this name.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	keys, channel := []string{name}, prefixedKey("redisson_rwlock", name)
	prefix := tagged(name) // of the keys of single read holds
	holdKey := func(o Owner, i int) string { return prefix + ":" + o.id + ":rwlock_timeout:" + strconv.Itoa(i) }
	read := &scripted{
		locker: l, channels: []string{channel},
		take:    l.request("read_lock", keys, ownerID, holdCount, leaseTime),
		prolong: l.request("read_extend", keys, ownerID, leaseTime, prefix),
		give:    l.request("read_unlock", keys, ownerID, holdCount, publishVerb, channel),
		look:    l.request("look", keys, "read"),
		force:   l.request("force_mode", keys, "read", publishVerb, channel, "0", prefix),
	}
	read.take.own = func(c callParams) string { return holdKey(c.owner, c.count) }
	read.give.own = func(c callParams) string { return holdKey(c.owner, 1) }
	write := &scripted{
		locker: l, channels: []string{channel},
		take:    l.request("write_lock", keys, ownerID, holdCount, leaseTime),
		prolong: l.request("write_extend", keys, ownerID, leaseTime),
		give:    l.request("write_unlock", keys, ownerID, holdCount, publishVerb, channel, prefix),
		look:    l.request("look", keys, "write"),
		force:   l.request("force_mode", keys, "write", publishVerb, channel, "1", prefix),
	}
	rw := &ReadWrite{
		read:  l.newLock(name, read, traits{reentrant: true, publishesForce: true}),
		write: l.newLock(name, write, traits{exclusive: true, reentrant: true, publishesForce: true}),
	}
	rw.read.namespace, rw.write.namespace = "read ", "write "
	return rw
}

// Read returns the read lock.
func (r *ReadWrite) Read() *Lock { return r.read }

// Write returns the write lock.
func (r *ReadWrite) Write() *Lock { return r.write }

// Group returns a lock of some values of a group, which are held together: all or none,
// in one round trip. Two Groups with the same name exclude each other if they have a
// value in common. In a cluster they need no hash tag, because a group is one key. It is
// compatible with Redisson's getMultiLock with a name and values: a hash under name with
// three fields for each value that is held.
//
// A value is the output of the codec of the Java program: the UTF-8 string for
// StringCodec, the decimal digits for LongCodec. The output of serializing codecs, such
// as the default Kryo codec, cannot be produced here. The order of values and duplicates
// do not matter.
//
// If a holder dies, its values are free one lease later, by the clock of Redis. Java uses
// its own clock for the end of a lease: if that clock is ahead by more than two thirds of
// the lease, Java acquires what is still held here; if it is behind by as much, this
// package acquires what is still held by Java.
//
// One owner can hold several Groups with the same name if they have no value in common.
func (l *Locker) Group(name string, values ...string) *Lock {
	fields := make([]string, 0, len(values))
	for _, v := range values {
		fields = append(fields, fieldOf(v))
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	keys, channel := []string{name}, prefixedKey("redisson_lock__channel", name)
	with := func(script string, args ...any) request {
		for _, f := range fields {
			args = append(args, f)
		}
		return l.request(script, keys, args...)
	}
	lk := l.newLock(name, &scripted{
		locker: l, channels: []string{channel},
		take:    with("group_lock", ownerID, holdCount, leaseTime),
		prolong: with("group_extend", ownerID, leaseTime),
		give:    with("group_unlock", ownerID, holdCount, publishVerb, channel),
		look:    with("group_look"),
		force:   with("group_force", publishVerb, channel),
	}, traits{exclusive: true, reentrant: true})
	lk.namespace = "group " + strings.Join(fields, "") + " "
	for _, f := range fields {
		lk.resources = append(lk.resources, "group "+f+" "+name)
	}
	if len(fields) == 0 && lk.err == nil {
		lk.err = fmt.Errorf("%w: group %q has no values", ErrInvalidName, name)
	}
	return lk
}

// fieldOf returns the field name of a value: its HighwayHash with Redisson's key, both
// halves in big-endian order as in Java, in base64 without padding.
func fieldOf(value string) string {
	var key []byte
	for _, n := range []uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95} {
		key = binary.LittleEndian.AppendUint64(key, n)
	}
	sum := highwayhash.Sum128([]byte(value), key)
	slices.Reverse(sum[:8])
	slices.Reverse(sum[8:])
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

//go:embed *.lua
var sources embed.FS

// A script is a Lua script and the hash by which Redis identifies it.
type script struct {
	name, source, sha string
}

// loadScripts loads all scripts of this package by name.
func loadScripts() map[string]*script {
	entries, err := sources.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the binary
	}
	scripts := make(map[string]*script, len(entries))
	for _, e := range entries {
		source, err := sources.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha1.Sum(source)
		name := strings.TrimSuffix(e.Name(), ".lua")
		scripts[name] = &script{name: name, source: string(source), sha: hex.EncodeToString(sum[:])}
	}
	return scripts
}

// A noRetryCmd is a command that the client does not retry: if a reply is lost, the
// script must not run a second time unnoticed.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry tells go-redis not to retry the command.
func (noRetryCmd) NoRetry() bool { return true }

// command returns "EVALSHA sha n keys… args…", or EVAL with the source.
func (s *script) command(ctx context.Context, verb string, keys []string, args []any) noRetryCmd {
	program := s.sha
	if verb == "eval" {
		program = s.source
	}
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, verb, program, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	return noRetryCmd{redis.NewCmd(ctx, append(line, args...)...)}
}

// A reply is the reply of a script: an integer if the script has done what it was asked
// to do, otherwise an array of at most two integers. An integer takes Redis a third of a
// µs less.
type reply struct {
	done     bool
	n, index int64
}

// run runs s at most once and returns its reply. If the server does not have the script, the source is sent. So it takes
// one round trip, or two. With replicas it is followed on the same connection by WAIT, and returns ErrNotSynced if fewer
// of them confirmed what the script has taken.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, replicas int, keys []string, args []any) (
	reply, error) {
	node := rdb
	if cluster, ok := rdb.(*redis.ClusterClient); ok && replicas > 0 {
		// WAIT has no key, so it must be sent to the node directly.
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return reply{}, s.failed(ctx, rdb, err)
		}
		node = master
	}
	cmd := s.command(ctx, "evalsha", keys, args)
	confirmed, err := send(ctx, node, cmd, replicas)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = s.command(ctx, "eval", keys, args)
		confirmed, err = send(ctx, node, cmd, replicas)
	}
	if err != nil {
		return reply{}, s.failed(ctx, rdb, err)
	}
	r, err := s.decode(cmd.Val())
	if err == nil && r.done && confirmed < int64(replicas) {
		err = fmt.Errorf("%w: %d of %d", ErrNotSynced, confirmed, replicas)
	}
	return r, err
}

// failed wraps err. In a cluster it also reloads the slots, because a node that does not
// reply, or not for this key, may have been replaced, and the client does this only when
// it retries.
func (s *script) failed(ctx context.Context, rdb redis.UniversalClient, err error) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok && isTemporary(err) {
		cluster.ReloadState(ctx) // in the background, at most every 200 ms
	}
	return fmt.Errorf("run %s: %w", s.name, err)
}

// isOutcomeUnknown reports whether the server may have executed the call that returned
// err. It has not if it replied so, or if there was no connection.
func isOutcomeUnknown(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	isUnsent := errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) || ok && network.Op == "dial"
	return err != nil && !replied(err) && !isUnsent
}

// replied reports whether err is what a server said.
func replied(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// send sends a script, and WAIT together with it if there are replicas, and returns how many of them have confirmed.
// WAIT gets a third of the remaining time, because servers check its timeout only ten times a second.
func send(ctx context.Context, node redis.UniversalClient, cmd noRetryCmd, replicas int) (int64, error) {
	if replicas <= 0 {
		return 0, node.Process(ctx, cmd)
	}
	timeout := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline)/3, time.Millisecond)
	}
	pipe := node.Pipeline()
	pipe.Process(ctx, cmd)
	wait := noRetryCmd{redis.NewCmd(ctx, "wait", replicas, timeout.Milliseconds())}
	pipe.Process(ctx, wait)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	return wait.Int64()
}

// decode checks the type of a reply.
func (s *script) decode(answer any) (reply, error) {
	switch a := answer.(type) {
	case int64:
		return reply{done: true, n: a}, nil
	case []any:
		numbers := [2]int64{-1} // of an empty array
		whole := len(a) <= len(numbers)
		for i := 0; whole && i < len(a); i++ {
			numbers[i], whole = a[i].(int64)
		}
		if whole {
			return reply{n: numbers[0], index: numbers[1]}, nil
		}
	}
	return reply{}, fmt.Errorf("run %s: the reply is %T of %v, not an integer or an array of up to two",
		s.name, answer, answer)
}
