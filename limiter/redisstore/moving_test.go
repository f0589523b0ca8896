package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A move of a slot from one master of a cluster to another.
type move struct {
	t        *testing.T
	slot     int64
	from, to *redis.Client
}

// startMove begins to move the slot of key: the keys that it has stay where they are, and new ones belong to the other
// master.
func startMove(t *testing.T, client *redis.ClusterClient, key string) *move {
	t.Helper()
	m := &move{t: t, slot: client.ClusterKeySlot(t.Context(), key).Val()}
	slots := slotsOf(t, client)
	at := slices.IndexFunc(slots, func(s redis.ClusterSlot) bool { return int64(s.Start) <= m.slot && m.slot <= int64(s.End) })
	other := len(slots) - 1
	for slots[other].Nodes[0].Addr == slots[at].Nodes[0].Addr {
		other--
	}
	m.from = redis.NewClient(&redis.Options{Addr: slots[at].Nodes[0].Addr})
	m.to = redis.NewClient(&redis.Options{Addr: slots[other].Nodes[0].Addr})
	t.Cleanup(func() { m.from.Close(); m.to.Close() })
	m.do(m.to, "cluster", "setslot", m.slot, "importing", m.id(m.from))
	m.do(m.from, "cluster", "setslot", m.slot, "migrating", m.id(m.to))
	return m
}

// slotsOf returns the ranges of slots.
func slotsOf(t *testing.T, client *redis.ClusterClient) []redis.ClusterSlot {
	//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS
	return client.ClusterSlots(t.Context()).Val()
}

func (m *move) id(n *redis.Client) string { return m.do(n, "cluster", "myid").(string) }

func (m *move) do(n *redis.Client, args ...any) any {
	m.t.Helper()
	v, err := n.Do(m.t.Context(), args...).Result()
	if err != nil {
		m.t.Fatalf("%v: %v", args, err)
	}
	return v
}

// carry moves keys.
func (m *move) carry(keys ...string) {
	m.t.Helper()
	host, port, _ := strings.Cut(m.to.Options().Addr, ":")
	for _, k := range keys {
		m.do(m.from, "migrate", host, port, k, 0, 5000)
	}
}

// finish moves the keys that are left, and the slot.
func (m *move) finish() {
	m.t.Helper()
	for _, k := range m.from.ClusterGetKeysInSlot(m.t.Context(), int(m.slot), 100).Val() {
		m.carry(k)
	}
	for _, n := range []*redis.Client{m.to, m.from} {
		m.do(n, "cluster", "setslot", m.slot, "node", m.id(m.to))
	}
}

// A script that writes a key which it has emptied is refused while the slot moves, for a new key belongs to the other
// master: nothing of what was taken may get lost by that.
func writesWhileSlotsMove(t *testing.T, client *redis.ClusterClient, store *redisstore.Store) {
	const now, window = 1_800_000_000_000, time.Hour
	bucket := limiter.Limit{Name: "moves:1h", Rate: limiter.Rate{Count: 200, Window: window}}
	distinct, log := bucket, bucket
	distinct.Algorithm, log.Algorithm = limiter.Distinct, limiter.SlidingLog
	type movingStore struct {
		*redisstore.Store
		*testing.T
		claims []limiter.Claim
		keys   []string // value, permits, base
	}
	take := func(s *movingStore, n int) {
		s.Helper()
		for i := range n {
			s.claims[0].Value = limiter.KeyOf("value", strconv.Itoa(i))
			if !decide(s.T, s, s.claims...).Allowed {
				s.Fatalf("take %d: refused", i+1)
			}
		}
	}
	clock := func(s *movingStore, d time.Duration) {
		client.Set(t.Context(), redisstore.SlotClock(s.claims[0].Key), now+d.Milliseconds(), 0)
	}
	reset := func(s *movingStore) {
		if err := s.Reset(s.Context(), s.claims); err != nil {
			s.Error(err)
		}
	}
	for name, test := range map[string]struct {
		limit         limiter.Limit
		before, while func(s *movingStore)
		used          int64
	}{
		"entries merge": {bucket, func(s *movingStore) { take(s, 128) }, func(s *movingStore) { take(s, 1) }, 129},
		"all has expired": {bucket, func(s *movingStore) {
			take(s, 40)
			clock(s, window)
		}, func(s *movingStore) { take(s, 1) }, 1},
		"reset": {bucket, func(s *movingStore) { take(s, 40) }, reset, 0},
		"reset of what cannot be read": {log, func(s *movingStore) {
			client.Set(s.Context(), s.keys[0], "\x09", 0)
		}, reset, 0},
		"values of an earlier version": {distinct, func(s *movingStore) {
			for i := range 3 {
				value := limiter.KeyOf("value", strconv.Itoa(i))
				member := string(value[:8]) + "12345678"
				client.ZAdd(s.Context(), s.keys[1], redis.Z{Score: now, Member: member})
			}
			client.HSet(s.Context(), s.keys[0], "neither", "1")
			client.Set(s.Context(), s.keys[2], "a ban that is over", 0)
		}, func(s *movingStore) { take(s, 4) }, 4},
		"all values have expired": {distinct, func(s *movingStore) {
			take(s, 4)
			client.Set(s.Context(), s.keys[2], "a ban that is over", 0)
			clock(s, window)
		}, func(s *movingStore) { take(s, 2) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &movingStore{Store: store, T: t}
			s.claims = []limiter.Claim{{Limit: &test.limit, Key: limiter.KeyOf(name), Cost: 1}}
			s.keys = redisstore.KeyNames(s.claims[0])
			clock(s, 0)
			test.before(s)
			m := startMove(t, client, redisstore.SlotClock(s.claims[0].Key))
			test.while(s)
			m.finish()
			if client.Exists(t.Context(), s.keys[:min(2, len(s.keys))]...).Val() == 0 {
				t.Error("nothing is left, not even the time of the reset")
			}
			in, err := s.Inspect(t.Context(), s.claims)
			if err != nil || in.Statuses[0].Used != test.used {
				t.Errorf("%+v, %v; want %d used", in.Statuses, err, test.used)
			}
		})
	}
}

// Of several keys of which some have moved neither master can do anything: what needs them waits until all have.
func slotsHalfMoved(t *testing.T, client *redis.ClusterClient, store *redisstore.Store) {
	c := claim(5, time.Hour, 1)
	c[0].Key = limiter.KeyOf("half moved")
	first := decide(t, store, c...)
	m := startMove(t, client, name(c)+":value")
	m.carry(name(c) + ":value")
	unknown := claim(5, time.Hour, 1)
	unknown[0].Key, unknown[0].Limit.Name = c[0].Key, "sms.other:w" // whose keys are to be on the other master
	done := make(chan error, 4)
	start := func(on *redis.Client, call func() error) {
		go func() { done <- call() }()
		eventually(t, "a master says to try again", func() bool {
			return strings.Contains(on.Info(t.Context(), "errorstats").Val(), "errorstat_TRYAGAIN")
		})
		on.ConfigResetStat(t.Context())
	}
	start(m.to, func() error { return store.Take(t.Context(), unknown, new(limiter.Decision)) })
	start(m.from, func() error { return store.Take(t.Context(), c, new(limiter.Decision)) })
	start(m.from, func() error { return store.Refund(t.Context(), c, first.Permit) })
	start(m.from, func() error {
		_, err := store.Inspect(t.Context(), c)
		return err
	})
	m.finish()
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	in, err := store.Inspect(t.Context(), slices.Concat(c, unknown))
	if err != nil || in.Statuses[0].Used != 1 || in.Statuses[1].Used != 1 {
		t.Errorf("%+v, %v; want 1 used of each", in.Statuses, err)
	}
}

// Two keys on one master are decided by one call. While the slot of one of them moves, that call fails, as it does on a
// Redis that knows no such scripts, and both are decided by calls of their own, once.
func severalSlotsInOneCall(t *testing.T, client *redis.ClusterClient) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA} {
		t.Run(a.String(), func(t *testing.T) {
			store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
			claims := pairOnOneNode(t, client, a, "taken")
			taken := int64(0)
			take := func(when string, calls int, while ...func()) {
				t.Helper()
				resetStats(t, client)
				var d limiter.Decision
				done := make(chan error)
				go func() { done <- store.Take(t.Context(), claims, &d) }()
				for _, do := range while {
					do()
				}
				if err := <-done; err != nil || !d.Allowed {
					t.Fatalf("%s: %+v, %v", when, d, err)
				}
				taken++
				in, err := store.Inspect(t.Context(), claims)
				if err != nil || in.Statuses[0].Used != taken || in.Statuses[1].Used != taken {
					t.Errorf("%s: %+v, %v; want %d used of both", when, in.Statuses, err, taken)
				}
				if n := scriptCalls(t, client) - len(claims); calls > 0 && n != calls {
					t.Errorf("%s: %d script calls, want %d", when, n, calls)
				}
			}
			take("first", 0) // Redis may not know the script
			take("on one master", 1)
			if a == limiter.TokenBucket { // value and base are there to be read, while the permits are not to be written
				client.Set(t.Context(), redisstore.KeyNames(claims[1])[2], "a ban that is over", 0)
			}
			m := startMove(t, client, redisstore.SlotClock(claims[1].Key))
			if a == limiter.TokenBucket { // of whose keys one has moved
				m.carry(redisstore.KeyNames(claims[1])[1])
				take("as a key of three has moved", 0, func() {
					eventually(t, "a master says to try again", func() bool {
						return strings.Contains(m.from.Info(t.Context(), "errorstats").Val(), "errorstat_TRYAGAIN")
					})
					m.finish()
				})
			} else {
				take("as the slot begins to move", 1)
				m.carry(redisstore.KeyNames(claims[1])[0])
				take("as the key has moved", 0)
				m.finish()
			}
			take("on two masters", 0)
			take("on two masters, as is known", 2)
		})
	}
	t.Run("an earlier Redis", func(t *testing.T) {
		store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
		store.RefuseCrossSlot()
		claims := pairOnOneNode(t, client, limiter.FixedWindow, "taken")
		for i := range 3 {
			resetStats(t, client)
			if d := decide(t, store, claims...); !d.Allowed || d.Outcomes[0].Remaining != int64(9-i) || d.Outcomes[1].Remaining != int64(9-i) {
				t.Errorf("request %d: %+v", i+1, d)
			}
			if n := scriptCalls(t, client); i == 2 && (n != 2 || len(store.CallsBySlot()) != 1) {
				t.Errorf("%d script calls, want one for each key; by slots %v", n, store.CallsBySlot())
			}
		}
	})
}

// Permits of several keys on one master are refunded by one call, each once. If one of the keys has moved, or Redis knows no
// such scripts, each comes back by a call of its own.
func severalRefundsInOneCall(t *testing.T, client *redis.ClusterClient) {
	store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA} {
		t.Run(a.String(), func(t *testing.T) {
			claims := pairOnOneNode(t, client, a, "refunded")
			all := [][]limiter.Claim{claims[:1], claims[1:], claims[:1]} // the last one again
			refund := func(when string, calls int, meanwhile func()) {
				t.Helper()
				first, second := decide(t, store, claims[0]), decide(t, store, claims[1])
				meanwhile()
				resetStats(t, client)
				given, errs := store.RefundInOneCall(t.Context(), all, []limiter.Permit{first.Permit, second.Permit, first.Permit})
				if err := errors.Join(errs...); err != nil || given[0]+given[2] != 1 || given[1] != 1 {
					t.Errorf("%s: %d permits came back, %v", when, given, errs)
				}
				if n := scriptCalls(t, client); calls > 0 && n != calls {
					t.Errorf("%s: %d script calls, want %d", when, n, calls)
				}
				in, err := store.Inspect(t.Context(), claims)
				if err != nil || in.Statuses[0].Used != 0 || in.Statuses[1].Used != 0 {
					t.Errorf("%s: %+v, %v; want nothing used", when, in.Statuses, err)
				}
			}
			refund("first", 0, func() {}) // carries the script
			refund("on one master", 1, func() {})
			var m *move
			refund("as the keys have moved", 0, func() {
				names := redisstore.KeyNames(claims[1])
				client.SetNX(t.Context(), names[len(names)-1], "a ban that is over", 0) // if only keys are missing, a master says to wait
				m = startMove(t, client, names[0])
				m.carry(names...)
			})
			m.finish()
			refund("on two masters", 0, func() {})
		})
	}
	t.Run("an earlier Redis, and clocks that differ", func(t *testing.T) {
		store := redisstore.NewWithSlotClock(client, redisstore.Options{Timeout: patient})
		defer store.Close()
		store.RefuseCrossSlot()
		claims := pairOnOneNode(t, client, limiter.FixedWindow, "refunded")
		for i, c := range claims {
			client.Set(t.Context(), redisstore.SlotClock(c.Key), 1_900_000_000_000+100*i, 0)
		}
		d := decide(t, store, claims...)
		err := store.Refund(t.Context(), claims, d.Permit)
		in, failed := store.Inspect(t.Context(), claims)
		if err != nil || failed != nil || in.Statuses[0].Used != 0 || in.Statuses[1].Used != 0 {
			t.Errorf("%v; %+v, %v; want nothing used", err, in.Statuses, failed)
		}
	})
}

// While the slots of all keys move, one after another, requests for one and for several of them are decided without an
// error, and each key as often as its limit says.
func TestStore_SlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.StartMasters(t, 3))
	const keys, limit, callers = 12, 20, 8
	store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	var all [keys]limiter.Claim
	for i := range all {
		c := claim(limit, time.Hour, 1)[0]
		c.Limit.Algorithm = []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow}[i%3]
		c.Key = limiter.KeyOf("moves under load", strconv.Itoa(i))
		all[i] = c
	}
	var granted [keys]atomic.Int64
	var asking sync.WaitGroup
	moved := make(chan struct{})
	for caller := range callers {
		asking.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(caller)))
			for n := 0; ; n++ {
				select {
				case <-moved:
					if n >= keys*limit {
						return
					}
				default:
				}
				first := r.IntN(keys)
				claims := all[first:min(keys, first+1+r.IntN(3))]
				var d limiter.Decision
				if err := store.Take(t.Context(), claims, &d); err != nil {
					t.Error(err)
					return
				}
				for i := range claims {
					if d.Allowed {
						granted[first+i].Add(1)
					}
				}
			}
		})
	}
	last := slotsOf(t, client)[2].Nodes[0].Addr
	for i := range all {
		name := redisstore.SlotClock(all[i].Key)
		if node, err := client.MasterForKey(t.Context(), name); err != nil || node.Options().Addr == last {
			continue // as in pairOnOneNode
		}
		startMove(t, client, name).finish()
	}
	close(moved)
	asking.Wait()
	for i := range all {
		for granted[i].Load() < limit && decide(t, store, all[i]).Allowed { // what transient permits of others kept
			granted[i].Add(1)
		}
		if n := granted[i].Load(); n != limit {
			t.Errorf("key %d by %v was granted %d times, want %d", i, all[i].Limit.Algorithm, n, limit)
		}
	}
}

// pairOnOneNode returns claims of two keys, whose names have a part, in two slots of one master. It is not the one to which
// startMove moves: masters that get slots from each other, so fast, may disagree about their epochs.
func pairOnOneNode(t *testing.T, client *redis.ClusterClient, a limiter.Algorithm, part string) (claims []limiter.Claim) {
	var on string
	slots := slotsOf(t, client)
	last := slots[len(slots)-1].Nodes[0].Addr
	for i := 0; len(claims) < 2; i++ {
		c := claim(10, time.Hour, 1)[0]
		c.Limit.Algorithm, c.Key = a, limiter.KeyOf(part, a.String(), strconv.Itoa(i))
		node, err := client.MasterForKey(t.Context(), redisstore.SlotClock(c.Key))
		if err != nil {
			t.Fatal(err)
		}
		if addr := node.Options().Addr; addr != last && (on == "" || on == addr) {
			on, claims = node.Options().Addr, append(claims, c)
		}
	}
	return claims
}

func resetStats(t *testing.T, client *redis.ClusterClient) {
	onMasters(t, client, func(n *redis.Client) { n.ConfigResetStat(t.Context()) })
}

// scriptCalls returns how many script calls the masters have run.
func scriptCalls(t *testing.T, client *redis.ClusterClient) (calls int) {
	onMasters(t, client, func(n *redis.Client) {
		calls += redistest.Commands(t, n)["evalsha"].Calls
	})
	return calls
}

// onMasters calls do for one master after another.
func onMasters(t *testing.T, client *redis.ClusterClient, do func(*redis.Client)) {
	var mu sync.Mutex
	err := client.ForEachMaster(t.Context(), func(_ context.Context, n *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		do(n)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
