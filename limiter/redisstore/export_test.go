package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io/fs"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// TestClock is where a store of NewWithTestClock reads the time, in ms.
const TestClock = "weir-test-clock"

//go:embed testdata/emptied.lua
var emptiedLua string

const testClock = "local function clock() return tonumber(redis.call('GET', '" + TestClock + "')) end"

// NewWithTestClock is New with a clock that a test sets.
func NewWithTestClock(client redis.UniversalClient, o Options) *Store {
	o.CachedRefusals = -1 // they go by the real time
	return newStore(client, o, testClock)
}

// NewOnMovingSlots is NewWithTestClock on a Redis that is as strict as a cluster whose slots move.
func NewOnMovingSlots(client redis.UniversalClient, o Options) *Store {
	o.CachedRefusals = -1
	return newStore(client, o, emptiedLua+testClock)
}

// NewWithoutInline is NewWithTestClock with scripts in which nothing is inlined.
func NewWithoutInline(client redis.UniversalClient, o Options) *Store {
	s := NewWithTestClock(client, o)
	s.scripts.source.Plain = true
	return s
}

// NewAcrossSlots is NewWithTestClock with the scripts for keys of several slots.
func NewAcrossSlots(client redis.UniversalClient, o Options) *Store {
	s := NewWithTestClock(client, o)
	s.crossSlot = true
	return s
}

// RefuseCrossSlot makes s send Redis scripts with a flag that it does not know, as one before version 7 knows none.
func (s *Store) RefuseCrossSlot() {
	for _, name := range []string{"take", "one", "many", "refund"} {
		for a := range limiter.NumAlgorithms {
			for _, algorithms := range []uint16{1 << a, allAlgorithms} {
				text := "#!lua flags=unknown-here\nreturn 1"
				s.scripts.made[scriptName{name, algorithms, true}] = &script{text: text, call: s.scripts.get(scriptName{name: "take"}).call}
			}
		}
	}
}

// LuaFolder has the files of which scripts are made.
func LuaFolder() fs.FS { return luaFolder() }

var CheckVersion = checkVersion

// WindowName is what the names of the keys of a window begin with that has several.
func WindowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}

// BoxName is the key that holds the window of c, and others, of algorithms whose state
// is one string.
func BoxName(c limiter.Claim) string { return KeyNames(c)[0] }

// KeyNames are the keys that hold the window of c.
func KeyNames(c limiter.Claim) []string { return newNames(DefaultPrefix, "").keys(c) }

func (n names) keys(c limiter.Claim) []string {
	if c.RedissonName != "" {
		return redissonKeysOf(c.RedissonName, n.client)
	}
	all := make([]string, keyCount(c.Limit.Algorithm))
	for i := range all {
		all[i] = string(n.append(nil, &c, i))
	}
	return all
}

// Hears reports whether s learns of what other proxies give back.
func (s *Store) Hears() bool { return s.refusals.isSubscribed.Load() }

// Remembered is how many refusals s knows.
func (s *Store) Remembered() int {
	s.refusals.cache.CleanUp()
	return s.refusals.cache.EstimatedSize()
}

// NewWithSlotClock is New with a clock that each slot of a cluster has of its own:
// in SlotClock of a key. A call for several slots has the latest of theirs, and sets all to it.
func NewWithSlotClock(client redis.UniversalClient, o Options) *Store {
	o.CachedRefusals = -1
	return newStore(client, o, `local function clock()
  local latest, all = 0, {}
  for i = 1, #KEYS do
    local name = string.match(KEYS[i], '{.-}') .. 'clock'
    if not all[name] then
      all[name] = tonumber(redis.call('GET', name) or 0)
      latest = math.max(latest, all[name])
    end
  end
  for name, told in pairs(all) do
    if told > 0 and told < latest then redis.call('SET', name, latest) end
  end
  return latest > 0 and latest or redis.call('TIME')[1] * 1000
end`)
}

// SlotClock is where a store of NewWithSlotClock reads the time for k.
func SlotClock(k limiter.Key) string { return "{" + k.String() + "}clock" }

// inOneBatch makes a call for each of all, which travel together.
func (s *Store) inOneBatch(ctx context.Context, all [][]limiter.Claim, makeCall func(i int) *call) (calls []*call) {
	p, err := s.pipelines.forClaim(ctx, &all[0][0])
	if err != nil {
		panic(err)
	}
	p.queue.mu.Lock()
	for i := range all {
		c := makeCall(i)
		c.crossSlot = p.crossSlot.Load()
		if err := p.queue.enqueueLocked(c); err != nil {
			panic(err)
		}
		calls = append(calls, c)
	}
	p.queue.mu.Unlock()
	for _, c := range calls {
		<-c.done
	}
	return calls
}

// RefundInOneCall refunds what each of permits took for the claims in the same place of all. given is how many permits
// came back.
func (s *Store) RefundInOneCall(ctx context.Context, all [][]limiter.Claim, permits []limiter.Permit) (given []int64, errs []error) {
	refund := func(i int) *call {
		c := s.newCall(all[i], [16]byte{})
		c.change = &changeCommand{refund: permits[i]}
		return c
	}
	for _, c := range s.inOneBatch(ctx, all, refund) {
		given, errs = append(given, c.reply), append(errs, c.err)
	}
	return given, errs
}

// TakeInOneCall takes each of all, which travel together.
func (s *Store) TakeInOneCall(ctx context.Context, all [][]limiter.Claim) (errs []error, ds []limiter.Decision) {
	for _, c := range s.inOneBatch(ctx, all, func(i int) *call { return s.newCall(all[i], newID()) }) {
		if c.err != nil {
			c.err = fmt.Errorf("%w: %w", limiter.ErrUnavailable, c.err)
		}
		if c.decision.Allowed {
			c.decision.Permit = limiter.Permit{ID: c.id, At: c.decision.At}
		}
		errs, ds = append(errs, c.err), append(ds, c.decision)
	}
	return errs, ds
}

// TakePlain is Take without company, memory or queue: one script call.
func (s *Store) TakePlain(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.decide(ctx, "take", claims, newID(), d)
}

// Deny makes s remember that c was refused for so long.
func (s *Store) Deny(c limiter.Claim, wait time.Duration) {
	now := s.refusals.now()
	s.refusals.hasEntries.Store(true)
	s.refusals.cache.Set(windowIDOf(&c), &cachedRefusal{limit: c.Limit, cost: c.Cost, askedAt: now, expiresAt: now + wait})
}

// Flying is how many calls nobody has answered yet.
func (s *Store) Flying() (n int) {
	s.pipelines.mu.Lock()
	defer s.pipelines.mu.Unlock()
	for _, p := range s.pipelines.byNode {
		p.queue.mu.Lock()
		for c := p.queue.oldest; c != nil; c = c.next {
			n++
		}
		p.queue.mu.Unlock()
	}
	return n
}

// Unreported is of how many windows s has something to report.
func (s *Store) Unreported() int64 { return s.reports.windows.Load() }

// BeingSent reports whether what is to be reported of the window of c is on its way.
func (s *Store) BeingSent(c *limiter.Claim) bool {
	s.reports.mu.Lock()
	defer s.reports.mu.Unlock()
	found := s.reports.byWindow[windowIDOf(c)]
	return found != nil && found.sending > 0
}

// Ungranted is how many grants s is to report of the window of claims.
func (s *Store) Ungranted(claims []limiter.Claim) int {
	s.reports.mu.Lock()
	defer s.reports.mu.Unlock()
	return len(s.reports.byWindow[windowIDOf(&claims[0])].grants)
}

// TellAged reports a grant that was made so long ago, and waits.
func (s *Store) TellAged(ctx context.Context, claims []limiter.Claim, p limiter.Permit, age time.Duration) error {
	s.reports.add(time.Now().Add(-age), claims, p)
	return s.sendReports(ctx, claims)
}

// TellAnd reports a grant like TellAged, and calls do while it is being sent.
func (s *Store) TellAnd(ctx context.Context, claims []limiter.Claim, p limiter.Permit, do func()) error {
	s.reports.add(time.Now(), claims, p)
	sent := s.reports.startSending(claims, s.partSlot)
	do()
	return s.deliver(ctx, sent)
}

// Reports are what a Store has to report.
type Reports struct{ r *reports }

func NewReports() Reports { return Reports{newReports()} }

func (r Reports) Add(claims []limiter.Claim, p limiter.Permit) { r.r.add(time.Now(), claims, p) }

// Elapsed says how long ago the grants were made, as it would travel now.
func (r Reports) Elapsed(claims []limiter.Claim) (all []time.Duration) {
	told := r.r.startSending(claims, slotOf)[0]
	packed := told.encode(time.Now())
	for i := 12; i < len(packed); i += grantBytes {
		age := append(append([]byte{}, packed[i:i+6]...), 0, 0)
		all = append(all, time.Duration(binary.LittleEndian.Uint64(age))*time.Millisecond)
	}
	return all
}

// HearMessage lets s hear a message of the channel, and reports whether it was a change.
func (s *Store) HearMessage(text string) bool { return s.handleChange(text) }

// Granted is how many permits of a window would be reported now as granted within it.
func (r Reports) Granted(claims []limiter.Claim) (n int64) {
	for _, g := range r.r.byWindow[windowIDOf(&claims[0])].grants {
		if time.Since(g.at) < claims[0].Limit.Horizon() {
			n += g.cost
		}
	}
	return n
}
