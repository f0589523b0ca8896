package redisstore_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
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
	for _, s := range client.ClusterSlots(t.Context()).Val() {
		master := s.Nodes[0].Addr
		node := redis.NewClient(&redis.Options{Addr: master})
		t.Cleanup(func() { node.Close() })
		if int64(s.Start) <= m.slot && m.slot <= int64(s.End) {
			m.from = node
		} else {
			m.to = node
		}
	}
	m.do(m.to, "cluster", "setslot", m.slot, "importing", m.id(m.from))
	m.do(m.from, "cluster", "setslot", m.slot, "migrating", m.id(m.to))
	return m
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
func writesWhileSlotsMove(t *testing.T, client *redis.ClusterClient) {
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
			s := &movingStore{Store: redisstore.NewWithSlotClock(client, redisstore.Options{Timeout: patient}), T: t}
			defer s.Store.Close()
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
