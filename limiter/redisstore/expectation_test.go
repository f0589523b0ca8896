package redisstore_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// A send is a permit of an expectation's limit that is certainly taken: nobody has begun to return it.
type send struct {
	key, subject int
	claims       []limiter.Claim
	permit       limiter.Permit
	at           time.Time
}

// An expectation is what callers of a store know of it, while they take, return and refund at random. It counts what is
// open for certain, and each subject as confirmed as soon as somebody begins to return it.
type expectation struct {
	t     *testing.T
	store *redisstore.Store
	limit *limiter.Limit

	mu        sync.Mutex // guards what follows
	open      []send
	returns   map[[2]int]int // how often each subject of a key was returned, or one of it refunded
	confirmed []map[int]bool // by key, subjects
	slack     []int          // by key, permits that a failover may have lost
	answered  []int          // by key, requests since the last reset
}

const (
	limitedKeys   = 6
	subjectsOfKey = 400 // of each key
	callers       = 4
)

func newExpectation(t *testing.T, store *redisstore.Store) *expectation {
	e := &expectation{t: t, store: store, returns: map[[2]int]int{}, slack: make([]int, limitedKeys), answered: make([]int, limitedKeys)}
	e.limit = limitertest.LimitOf(limiter.Conversion, t.Name()+".unused:1h", limiter.Rate{Count: 5, Window: time.Hour})
	for range limitedKeys {
		e.confirmed = append(e.confirmed, map[int]bool{})
	}
	return e
}

func (e *expectation) key(i int) limiter.Key { return limiter.KeyOf(e.t.Name(), strconv.Itoa(i)) }

func (e *expectation) subject(key, i int) limiter.Key {
	return limiter.KeyOf(e.t.Name(), strconv.Itoa(key), strconv.Itoa(i))
}

// step takes, returns or refunds something.
func (e *expectation) step() {
	key, subject := rand.IntN(limitedKeys), rand.IntN(subjectsOfKey)
	switch n := rand.IntN(10); {
	case n < 6:
		e.take(key, subject)
	case n < 8:
		if s, ok := e.pick(); ok {
			e.giveBack(s.key, s.subject)
		}
	case n < 9:
		e.giveBack(key, subject) // most likely one that has nothing, or once more
	default:
		if s, ok := e.pick(); ok {
			e.begin(s.key, s.subject)
			_ = e.store.Refund(e.t.Context(), s.claims, s.permit)
		}
	}
}

func (e *expectation) take(key, subject int) {
	claims := []limiter.Claim{{Limit: e.limit, Key: e.key(key), Cost: 1, Value: e.subject(key, subject)}}
	e.mu.Lock()
	before := e.returns[[2]int{key, subject}]
	e.mu.Unlock()
	var d limiter.Decision
	if err := e.store.Take(e.t.Context(), claims, &d); err != nil {
		select { // an outage is answered at once
		case <-e.t.Context().Done():
		case <-time.After(time.Millisecond):
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answered[key]++; !d.Allowed {
		return
	}
	if e.returns[[2]int{key, subject}] != before {
		return // it may be returned already
	}
	e.open = append(e.open, send{key, subject, claims, d.Permit, time.Now()})
	if open, most := e.openOf(key), 5+len(e.confirmed[key])+e.slack[key]; open > most {
		e.t.Errorf("%d are open of key %d; at most %d may be", open, key, most)
	}
}

// openOf is how many permits of a key are taken for certain.
func (e *expectation) openOf(key int) (n int) {
	for _, s := range e.open {
		if s.key == key {
			n++
		}
	}
	return n
}

// pick is one of the open permits.
func (e *expectation) pick() (send, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.open) == 0 {
		return send{}, false
	}
	return e.open[rand.IntN(len(e.open))], true
}

// begin forgets what is open of a subject.
func (e *expectation) begin(key, subject int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returns[[2]int{key, subject}]++
	kept := e.open[:0]
	for _, s := range e.open {
		if s.key != key || s.subject != subject {
			kept = append(kept, s)
		}
	}
	e.open = kept
}

func (e *expectation) giveBack(key, subject int) {
	e.begin(key, subject)
	e.mu.Lock()
	e.confirmed[key][subject] = true
	e.mu.Unlock()
	_, _ = e.store.Return(e.t.Context(), []*limiter.Limit{e.limit}, e.subject(key, subject))
}

// run lets callers take steps around what happens, until requests for each key are answered again.
func (e *expectation) run(happens func()) {
	e.t.Helper()
	done := make(chan struct{})
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					e.step()
				}
			}
		})
	}
	defer work.Wait()
	defer close(done)
	e.untilAnswered()
	happens()
	e.untilAnswered()
}

// untilAnswered waits until requests for each key were answered, from now on. They may all be refused: what was taken while
// it could not be noted stays taken.
func (e *expectation) untilAnswered() {
	e.t.Helper()
	e.mu.Lock()
	clear(e.answered)
	e.mu.Unlock()
	eventually(e.t, "requests for each key are answered", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Min(e.answered) >= 40
	})
}

// mayLose is called after a master has died: what was granted of its keys within the last two seconds, and what
// callers are about to hear, may be lost, and with the notes of that, as much of others may be returned.
func (e *expectation) mayLose(has func(limiter.Key) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range limitedKeys {
		if has(e.key(key)) {
			e.slack[key] += callers
		}
	}
	kept := e.open[:0]
	for _, s := range e.open {
		if has(e.key(s.key)) && time.Since(s.at) < 2*time.Second {
			e.slack[s.key]++
			continue
		}
		kept = append(kept, s)
	}
	e.open = kept
}

// check compares what the store says in the end.
func (e *expectation) check() {
	e.t.Helper()
	for key := range limitedKeys {
		in, err := e.store.Inspect(e.t.Context(), []limiter.Claim{{Limit: e.limit, Key: e.key(key), Cost: 1}})
		if err != nil {
			e.t.Fatal(err)
		}
		s, open := in.Statuses[0], e.openOf(key)
		if int(s.Confirmed) > len(e.confirmed[key]) || int(s.Used) < open-e.slack[key] {
			e.t.Errorf("key %d: %+v, with %d open for certain, %d that may be lost, and %d subjects", key, s, open, e.slack[key], len(e.confirmed[key]))
		}
	}
	e.t.Logf("%d open for certain, %v may be lost", len(e.open), e.slack)
}
