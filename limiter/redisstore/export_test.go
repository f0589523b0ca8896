package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// TestClock is where a store of NewWithTestClock reads the time, in ms.
const TestClock = "weir-test-clock"

const testClock = "local function clock() return tonumber(redis.call('GET', '" + TestClock + "')) end"

// NewWithTestClock is New with a clock that a test sets.
func NewWithTestClock(client redis.UniversalClient, o Options) *Store {
	o.CachedRefusals = -1 // they go by the real time
	return newStore(client, o, testClock)
}

// NewWithoutStruct is New for a Redis whose Lua has no struct, as miniredis has none:
// scripts get one that does what they need of it.
func NewWithoutStruct(client redis.UniversalClient, o Options) *Store {
	return newStore(client, o, structLua+luaFiles("clock"))
}

// NewWithoutInline is NewWithTestClock with scripts whose sections stay functions.
func NewWithoutInline(client redis.UniversalClient, o Options) *Store {
	s := NewWithTestClock(client, o)
	for _, f := range families() {
		for _, a := range f.algorithms {
			s.scripts.one[a] = newScript(testClock, setNow, f.withGeneral(f.shape(f.one)))
			s.scripts.many[a] = newScript(testClock, setNow, f.withGeneral(f.shape(f.many)))
		}
	}
	return s
}

// LuaFolder has the files of which scripts are made.
func LuaFolder() fs.FS { return luaFolder }

// ShapeTexts are the scripts of the shapes as they are written, without the function general, by the
// last file of the shape and of the algorithm.
func ShapeTexts() map[string]string {
	all := map[string]string{}
	for _, f := range families() {
		for _, files := range [][]string{f.one, f.many} {
			all[files[len(files)-1]+"_"+path.Base(f.algorithm[len(f.algorithm)-1])] = f.shape(files)
		}
	}
	return all
}

// Inline is what Redis runs of a text of ShapeTexts.
func Inline(text string) string { return inline(text) }

// ScriptTexts are all scripts of a Store by names.
func ScriptTexts() map[string]string {
	s := newScripts(luaFiles("clock"), DefaultPrefix)
	all := map[string]string{
		"take": s.take.text, "peek": s.peek.text, "refund": s.refund.text, "renew": s.renew.text, "grant": s.grant.text,
		"reset": s.reset.text, "ban": s.ban.text, "report": s.report.text, "inspect": s.inspect.text, "note": s.note.text, "return": s.returnNoted.text, "unnote": s.unnote.text, "confirm": s.confirm.text,
	}
	for a := range limiter.NumAlgorithms {
		name := a.String()
		all["one "+name], all["many "+name] = s.one[a].text, s.many[a].text
	}
	for form, format := range map[string]limiter.RedissonFormat{"redisson log": limiter.RedissonByte, "redisson window": limiter.RedissonWindow} {
		r := newRedissonScripts(luaFiles("clock"), DefaultPrefix, format)
		for name, script := range map[string]script{
			"take": r.take, "peek": r.peek, "refund": r.refund, "grant": r.grant, "reset": r.reset, "report": r.report,
			"inspect": r.inspect, "available": r.left, "set_rate": r.set,
		} {
			all[form+" "+name] = script.text
		}
	}
	return all
}

//go:embed testdata/struct.lua
var structLua string

var CheckVersion = checkVersion

// WindowName is what the names of the keys of a window begin with that has several.
func WindowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}

// BoxName is the key that holds the window of c, and others, of algorithms whose state
// is one string.
func BoxName(c limiter.Claim) string { return newNames(DefaultPrefix, "").keys(c)[0] }

// Hears reports whether s learns of what other proxies give back.
func (s *Store) Hears() bool { return s.refusals.isSubscribed.Load() }

// Remembered is how many refusals s knows.
func (s *Store) Remembered() int {
	s.refusals.cache.CleanUp()
	return s.refusals.cache.EstimatedSize()
}

// NewWithSlotClock is New with a clock that each slot of a cluster has of its own:
// in SlotClock of a key.
func NewWithSlotClock(client redis.UniversalClient, o Options) *Store {
	o.CachedRefusals = -1
	return newStore(client, o, `local function clock()
  return KEYS[1] and tonumber(redis.call('GET', string.match(KEYS[1], '{.-}') .. 'clock')) or redis.call('TIME')[1] * 1000
end`)
}

// SlotClock is where a store of NewWithSlotClock reads the time for k.
func SlotClock(k limiter.Key) string { return "{" + k.String() + "}clock" }

// TakeInOneCall takes each of all, which travel together.
func (s *Store) TakeInOneCall(ctx context.Context, all [][]limiter.Claim) (errs []error, ds []limiter.Decision) {
	p, err := s.pipelines.forClaim(ctx, &all[0][0])
	if err != nil {
		panic(err)
	}
	var calls []*call
	p.queue.mu.Lock()
	for _, claims := range all {
		c := s.newCall(claims, newID())
		if err := p.queue.enqueueLocked(c); err != nil {
			panic(err)
		}
		calls = append(calls, c)
	}
	p.queue.mu.Unlock()
	for _, c := range calls {
		<-c.done
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
	return s.decide(ctx, s.scripts.take, claims, newID(), d)
}

// Deny makes s remember that c was refused for so long.
func (s *Store) Deny(c limiter.Claim, wait time.Duration) {
	now := s.refusals.now()
	s.refusals.set(windowIDOf(&c), &cachedRefusal{limit: c.Limit, cost: c.Cost, askedAt: now, expiresAt: now + wait})
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
func (s *Store) HearMessage(text string) bool { return s.changes.handle(text) }
