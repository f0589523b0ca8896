package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// A batch is many requests on their way to one Redis: in one script call, or in
// one pipeline with a script call for each key of a cluster, and for each limiter
// that Redisson shares.
type batch struct {
	store   *Store
	claims  int
	windows map[windowID]batchedWindow // nil: of one call, whose windows are all different
	groups  []*slotBatch
	bySlot  map[slot]*slotBatch // of more than one call
}

// A slotBatch is what one script call carries.
type slotBatch struct {
	home   slot
	batch  payload
	shared *sharedBatch // in place of batch: of a limiter that Redisson shares
	calls  []*call
	cmd    onceCmd
}

// A windowID is whose window of what.
type windowID struct {
	limit     string
	algorithm limiter.Algorithm
	scope     limiter.Scope
	slot      slot
}

// A slot is what lies in one slot of a cluster: a key, or the keys of one limiter
// that Redisson shares.
type slot struct {
	key      limiter.Key
	redisson string
}

func slotOf(c limiter.Claim) slot {
	if c.Redisson != "" {
		return slot{redisson: c.Redisson}
	}
	return slot{key: c.Key}
}

// batchedWindow is a window by its number in its group.
type batchedWindow struct {
	number int
	limit  *limiter.Limit
}

func newBatch(s *Store) *batch {
	return &batch{store: s, windows: map[windowID]batchedWindow{}, bySlot: map[slot]*slotBatch{}}
}

// soloFlight is for one call, which then costs what it would cost without flights.
func soloFlight(s *Store) *batch { return &batch{store: s} }

// takes puts c aboard, or drops it if its caller has left; it reports false if c
// must take the next flight.
func (f *batch) takes(c *call) bool {
	if f.claims > 0 && f.claims+len(c.claims) > maxClaims {
		return false
	}
	for _, claim := range c.claims {
		if other, ok := f.windows[idOf(claim)]; ok && !same(other.limit, claim.Limit) {
			return false
		}
	}
	if !c.send() {
		return true
	}
	f.claims += len(c.claims)
	g := f.group(f.store.home(c.claims[0]))
	g.calls = append(g.calls, c)
	if c.claims[0].Redisson != "" {
		g.share(c)
		return true
	}
	g.batch.request(c.id, c.claims, func(claim limiter.Claim) int {
		if f.windows == nil {
			return g.batch.window(f.store.names, claim)
		}
		id := idOf(claim)
		w, ok := f.windows[id]
		if !ok {
			w = batchedWindow{g.batch.window(f.store.names, claim), claim.Limit}
			f.windows[id] = w
		}
		return w.number
	})
	return true
}

// idOf is one for all claims that name a limiter of Redisson's: its config decides.
func idOf(c limiter.Claim) windowID {
	if c.Redisson != "" {
		return windowID{slot: slotOf(c)}
	}
	return windowID{c.Limit.Name, c.Limit.Algorithm, c.Limit.Scope, slotOf(c)}
}

func same(a, b *limiter.Limit) bool {
	return a == b || a.Rate == b.Rate && a.Burst == b.Burst && slices.Equal(a.Steps, b.Steps)
}

// group is where the claims of a home travel.
func (f *batch) group(h slot) *slotBatch {
	if len(f.groups) > 0 && f.groups[0].home == h {
		return f.groups[0]
	}
	g := f.bySlot[h]
	if g == nil {
		g = &slotBatch{home: h}
		f.groups = append(f.groups, g)
		if f.bySlot != nil {
			f.bySlot[h] = g
		}
	}
	return g
}

// send asks Redis and tells every call its part of the answer, within the time
// that ctx and the store allow.
func (f *batch) send(ctx context.Context) {
	if len(f.groups) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.store.timeout)
	defer cancel()
	if f.groups[0].shared != nil {
		ctx = shared(ctx)
	}
	sent, version := time.Now(), f.store.denials.now()
	if len(f.groups) == 1 {
		g := f.groups[0]
		sc, keys, argv := g.asks(f.store)
		reply, err := sc.run(ctx, f.store.client, keys, argv)
		g.settle(f.store, sent, version, reply, err)
		return
	}
	f.sendAll(ctx)
	for _, g := range f.groups {
		err := g.cmd.Err()
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // it did not run: send the text, by itself
			sc, keys, argv := g.asks(f.store)
			g.cmd = sc.command(ctx, "eval", sc.text, keys, argv)
			err = f.store.client.Process(ctx, g.cmd)
		}
		g.settle(f.store, sent, version, g.cmd.Val(), err)
	}
}

// sendAll sends all groups in one pipeline. Each command keeps its own error.
func (f *batch) sendAll(ctx context.Context) {
	pipe := f.store.client.Pipeline()
	for _, g := range f.groups {
		sc, keys, argv := g.asks(f.store)
		g.cmd = sc.command(ctx, "evalsha", sc.hash, keys, argv)
		_ = pipe.Process(ctx, g.cmd) // a pipeline only collects here
	}
	_, _ = pipe.Exec(ctx)
}

// asks is what g has a Redis run, and for what.
func (g *slotBatch) asks(s *Store) (script, []string, []any) {
	if b := g.shared; b != nil {
		return s.shared(b.claim.RedissonForm).take, s.names.keys(b.claim), sharedArgs(b.claim, b.requests)
	}
	return s.scripts.take(&g.batch), g.batch.keys, g.batch.argv()
}

// settle reads the reply and tells each call.
func (g *slotBatch) settle(s *Store, sent time.Time, version uint64, reply any, err error) {
	at, rest, bad := readTime(reply)
	if err == nil {
		err = bad
	}
	want := 0
	for _, c := range g.calls {
		want += 1 + 2*len(c.claims)
	}
	if err == nil && len(rest) != want {
		err = errReply
	}
	if err != nil {
		s.remap()
		err = sharedError(err)
	}
	for _, c := range g.calls {
		c.sent = sent
		own := err
		if err == nil {
			rest, own = readDecision(rest, at, c.claims, &c.decision)
		}
		if own == nil {
			s.denials.learn(c, version)
		} else if !errors.Is(own, errType) {
			err = own
		}
		c.finish(own)
	}
}
