package locks

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

const (
	clients     = 8
	mishaps     = 4 // replies lost in one history; each stays open to its end
	callTimeout = time.Minute
)

// A history is what all clients did and saw.
type history struct {
	start  time.Time
	owners atomic.Int64

	mu  sync.Mutex // guards what follows
	ops []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) add(client int, in input, out output, call int64) {
	end := h.now()
	if out.answer == unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: end})
}

// A player is one client: a Locker behind a proxy of its own.
type player struct {
	*history
	id     int
	t      *testing.T
	locker *lock.Locker
	proxy  *redistest.FaultProxy
	dice   *rand.Rand
	losses *atomic.Int64
}

// asks notes a call that takes something, and what came of it.
func (p *player) asks(in input, call func(ctx context.Context) (*lock.Hold, error)) (*lock.Hold, bool) {
	if p.dice.IntN(10) == 0 && p.losses.Add(-1) >= 0 {
		p.proxy.Lose("evalsha")
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), callTimeout)
	defer cancel()
	at := p.now()
	hold, err := call(ctx)
	switch {
	case err == nil:
		out := output{answer: done}
		if hold != nil {
			out.token = hold.Token()
		}
		p.add(p.id, in, out, at)
		return hold, true
	case errors.Is(err, lock.ErrNotAcquired):
		p.add(p.id, in, output{answer: refusal}, at)
	default:
		p.add(p.id, in, output{answer: unknown}, at)
		in.verb = undo
		p.add(p.id, in, output{answer: unknown}, at)
	}
	return nil, false
}

// gives notes a call that gives something back; it must succeed.
func (p *player) gives(in input, call func(ctx context.Context) error) {
	in.verb = release
	at := p.now()
	if err := call(p.t.Context()); err != nil {
		p.t.Errorf("give back: %v", err)
	}
	p.add(p.id, in, output{}, at)
}

// takes holds l for a moment.
func (p *player) takes(l lock.Lockable, in input) {
	in.owner = int(p.owners.Add(1))
	if hold, ok := p.holds(l, in); ok {
		p.gives(in, hold.Unlock)
	}
}

// takesTwice holds l for a moment, and now and then enters it again meanwhile.
func (p *player) takesTwice(l lock.Lockable, in input) {
	in.owner = int(p.owners.Add(1))
	hold, ok := p.holds(l, in)
	if !ok {
		return
	}
	if p.dice.IntN(2) == 0 {
		at := p.now()
		if again, err := hold.Reenter(p.t.Context()); err == nil {
			p.add(p.id, input{verb: reenter, owner: in.owner}, output{}, at)
			p.gives(in, again.Unlock)
		} // otherwise the next unlock says how many there are
	}
	p.gives(in, hold.Unlock)
}

// holds asks for l, waiting for it or asking once.
func (p *player) holds(l lock.Lockable, in input) (*lock.Hold, bool) {
	ask := l.TryLock
	if p.dice.IntN(3) == 0 {
		ask = l.Lock
	}
	return p.asks(in, func(ctx context.Context) (*lock.Hold, error) { return ask(ctx) })
}

// record lets the clients loose and checks what they saw.
func record(t *testing.T, m porcupine.Model, permits int64, move func(p *player)) {
	t.Helper()
	s, rdb := server(t)
	rounds := rounds.Of(15)
	h := &history{start: time.Now()}
	var losses atomic.Int64
	losses.Store(mishaps)
	var all sync.WaitGroup
	for id := range clients {
		proxy := redistest.NewFaultProxy(t, s.Addr)
		p := &player{
			history: h, id: id, t: t, proxy: proxy, losses: &losses,
			locker: process(t, proxy.Addr, lock.WithPollInterval(500*time.Millisecond)),
			dice:   rand.New(rand.NewPCG(uint64(id), uint64(permits))),
		}
		all.Go(func() {
			for n := range rounds {
				move(p)
				if n%10 == 9 && p.id == 0 {
					rdb.ScriptFlush(context.Background())
					rdb.Do(context.Background(), "client", "kill", "type", "pubsub")
				}
			}
		})
	}
	all.Wait()
	result, info := porcupine.CheckOperationsVerbose(m, h.ops, time.Minute)
	if result != porcupine.Ok {
		file := filepath.Join(t.ArtifactDir(), "history.html")
		if err := porcupine.VisualizePath(m, info, file); err != nil {
			t.Error(err)
		}
		t.Errorf("the history of %d calls is %s; see %s", len(h.ops), result, file)
	}
	open := 0
	for _, op := range h.ops {
		if op.Return == math.MaxInt64 {
			open++
		}
	}
	t.Logf("%d calls by %d clients, %d of them without an end", len(h.ops), clients, open)
}

func TestHistory_Mutex(t *testing.T) {
	record(t, model(0), 0, func(p *player) {
		p.takes(p.locker.Simple("a"), input{verb: acquire})
	})
}

func TestHistory_Reentrant(t *testing.T) {
	record(t, model(0), 0, func(p *player) {
		p.takesTwice(p.locker.Reentrant("a"), input{verb: acquire})
	})
}

func TestHistory_Fenced(t *testing.T) {
	record(t, fencedModel(), 0, func(p *player) {
		p.takesTwice(p.locker.Fenced("a"), input{verb: acquire})
	})
}

// Groups that have no more than one value in common exclude each other all the same.
func TestHistory_Group(t *testing.T) {
	record(t, model(0), 0, func(p *player) {
		own := []string{"one", "two", "three", "four"}[:p.dice.IntN(4)+1]
		p.takesTwice(p.locker.Group("a", append(own, "common")...), input{verb: acquire})
	})
}

func TestHistory_ReadWrite(t *testing.T) {
	record(t, model(0), 0, func(p *player) {
		rw := p.locker.ReadWrite("a")
		if p.dice.IntN(3) == 0 {
			p.takesTwice(rw.Write(), input{verb: acquire})
		} else {
			p.takes(rw.Read(), input{verb: share})
		}
	})
}

func TestHistory_Semaphore(t *testing.T) {
	const permits = 5
	record(t, model(permits), permits, func(p *player) {
		s := p.locker.Semaphore("a")
		if _, err := s.TrySetPermits(p.t.Context(), permits); err != nil {
			p.t.Error(err)
		}
		in := input{verb: share, owner: int(p.owners.Add(1)), n: int64(p.dice.IntN(3) + 1)}
		ask := s.TryAcquire
		if p.dice.IntN(3) == 0 {
			ask = s.Acquire
		}
		_, ok := p.asks(in, func(ctx context.Context) (*lock.Hold, error) { return nil, ask(ctx, in.n) })
		if ok {
			p.gives(in, func(ctx context.Context) error { return s.Release(ctx, in.n) })
		}
	})
}

func TestHistory_Permits(t *testing.T) {
	const permits = 3
	record(t, model(permits), permits, func(p *player) {
		s := p.locker.ExpirableSemaphore("a")
		if _, err := s.TrySetPermits(p.t.Context(), permits); err != nil {
			p.t.Error(err)
		}
		p.takes(s, input{verb: share, n: 1})
	})
}

// A checker that cannot say no checks nothing.
func TestHistory_TheModelsCanSayNo(t *testing.T) {
	at := func(call, end int64) func(verb, int, answer) porcupine.Operation {
		return func(verb verb, owner int, answer answer) porcupine.Operation {
			return porcupine.Operation{Input: input{verb: verb, owner: owner, n: 1}, Output: output{answer: answer}, Call: call, Return: end}
		}
	}
	for name, ops := range map[string][]porcupine.Operation{
		"two holders":               {at(0, 1)(acquire, 1, done), at(2, 3)(acquire, 2, done)},
		"refused by nobody":         {at(0, 1)(acquire, 1, refusal)},
		"a writer among readers":    {at(0, 1)(share, 1, done), at(2, 3)(acquire, 2, done)},
		"more permits than it has":  {at(0, 1)(share, 1, done), at(2, 3)(share, 2, done), at(4, 5)(share, 3, done)},
		"reentry by another":        {at(0, 1)(acquire, 1, done), at(2, 3)(reenter, 2, done)},
		"held after all was undone": {at(0, 1)(acquire, 1, done), at(0, 9)(undo, 2, unknown), at(2, 3)(acquire, 3, done)},
	} {
		if porcupine.CheckOperations(model(2), ops) {
			t.Errorf("%s: the model has nothing against it", name)
		}
	}
	twice := []porcupine.Operation{at(0, 1)(acquire, 1, done), at(2, 3)(release, 1, done), at(4, 5)(acquire, 2, done)}
	for i, token := range map[int]int64{0: 7, 2: 7} {
		twice[i].Output = output{token: token}
	}
	if porcupine.CheckOperations(fencedModel(), twice) {
		t.Error("a token given twice: the model has nothing against it")
	}
}
