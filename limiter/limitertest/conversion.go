package limitertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// RunConversion tests limits with a conversion over the stores that open returns.
func RunConversion(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range []suiteTest{
		{"Grows", conversionGrows},
		{"Renewed", conversionRenewed},
		{"LeftForGood", conversionLeftForGood},
		{"OnceAcrossAJump", conversionOnceAcrossAJump},
		{"ManyKeysOfOneSubject", conversionManyKeys},
		{"Random", conversionRandom},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, &suite{Subject: open(t), t: t}) })
	}
}

// converting is a limit of which p percent must be returned beyond the rate.
func converting(name string, count int64, window time.Duration, p int) *limiter.Limit {
	l := LimitOf(limiter.Conversion, name, limiter.Rate{Count: count, Window: window})
	l.Conversion = p
	return l
}

// conversionGrows: for each subject that was confirmed more may be open.
func conversionGrows(t *testing.T, s *suite) {
	l := converting("grows", 3, time.Hour, 50)
	k := s.key()
	claim := func(subject limiter.Key) []limiter.Claim { return valued(l, k, subject) }
	ann, bob, eve := s.key(), s.key(), s.key()
	s.allowed(claim(ann), 2)
	s.allowed(claim(bob), 1)
	s.refused(claim(eve))
	s.returns([]*limiter.Limit{l}, eve, 0) // without a request, and of a refused one
	s.wantOpen(claim(eve), 3, 3, 0)
	s.returns([]*limiter.Limit{l}, ann, 2) // 1 open of 3 + 1
	s.wantOpen(claim(eve), 1, 4, 1)
	s.allowed(claim(eve), 3)
	s.refused(claim(eve))
	s.refused(claim(bob))
	s.returns([]*limiter.Limit{l}, bob, 1) // 3 open of 3 + 2
	s.wantOpen(claim(eve), 3, 5, 2)
	d := s.allowed(claim(bob), 1)
	s.refund(t, claim(bob), d.Permit) // not sent: nothing is confirmed by it
	s.refund(t, claim(bob), d.Permit)
	s.returns([]*limiter.Limit{l}, bob, 0)
	s.allowed(claim(eve), 2)
	s.refused(claim(eve))
	s.Advance(2 * time.Hour)
	s.wantOpen(claim(eve), 0, 3, 0)
	s.allowed(claim(eve), 3)
	s.refused(claim(eve))
}

// wantOpen checks what Inspect says: the open permits, what may be open, and the confirmed subjects.
func (s *suite) wantOpen(c []limiter.Claim, open, allowed, confirmed int64) {
	s.t.Helper()
	got := s.status(c)
	left := min(allowed-open, c[0].Limit.Rate.Count)
	if got.Used != open || got.Allowed != allowed || got.Confirmed != confirmed || got.Remaining != left {
		s.t.Fatalf("%+v; want %d open of %d, %d left, %d confirmed", got, open, allowed, left, confirmed)
	}
}

// conversionRenewed: a subject counts until one window after it was confirmed last, and once.
func conversionRenewed(t *testing.T, s *suite) {
	const day = 24 * time.Hour
	l := converting("renewed", 2, 6*time.Minute, 50)
	daily := converting("daily", 2, day, 50)
	k, eve := s.key(), s.key()
	s.Advance(day - time.Duration(s.peek(t, valued(l, k, eve)).At.UnixMilli())*time.Millisecond%day) // a day and a bucket begin
	confirm := func(l *limiter.Limit, subjects ...limiter.Key) {
		t.Helper()
		for _, subject := range subjects {
			s.allowed(valued(l, k, subject), 1)
			s.returns([]*limiter.Limit{l}, subject, 1)
		}
	}
	four := []limiter.Key{s.key(), s.key(), s.key(), s.key()}
	confirm(l, four...)
	s.Advance(4 * time.Minute)
	confirm(l, four...)
	confirm(l, four...)
	s.wantOpen(valued(l, k, eve), 0, 6, 4)
	s.Advance(2*time.Minute + time.Second)
	s.wantOpen(valued(l, k, eve), 0, 6, 4)
	confirm(l, four[0])
	s.Advance(4*time.Minute - time.Second)
	s.wantOpen(valued(l, k, eve), 0, 3, 1)
	s.Advance(2*time.Minute + time.Second)
	s.wantOpen(valued(l, k, eve), 0, 2, 0)

	for range 5 { // users who come each day an hour earlier
		confirm(daily, four...)
		s.Advance(day - time.Hour)
		s.wantOpen(valued(daily, k, eve), 0, 6, 4)
	}
	s.Advance(2 * day)
	s.wantOpen(valued(daily, k, eve), 0, 2, 0)
}

// conversionManyKeys: a subject confirms at most as many keys as can be recorded, and none twice.
func conversionManyKeys(t *testing.T, s *suite) {
	l := converting("many", 1, time.Hour, 50)
	ann, eve := s.key(), s.key()
	keys := 0
	for range 100 {
		k := s.key()
		s.allowed(valued(l, k, ann), 1)
		n, err := s.admin().Return(t.Context(), []*limiter.Limit{l}, ann)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break // nothing more can be noted: what is taken stays taken
		}
		keys++
		s.allowed(valued(l, k, eve), 2)
		s.refused(valued(l, k, eve)) // or the subject was confirmed twice
	}
	if keys != 64 {
		t.Errorf("one subject was confirmed for %d keys", keys)
	}
}

// conversionLeftForGood: what has left the window is not returned when the clock is set back to the time at which it was
// taken: what is there now is somebody else's.
func conversionLeftForGood(t *testing.T, s *suite) {
	l := converting("left", 2, time.Hour, 50)
	k, ann, bob, eve := s.key(), s.key(), s.key(), s.key()
	claim := func(subject limiter.Key) []limiter.Claim { return valued(l, k, subject) }
	s.Advance(time.Hour - time.Duration(s.peek(t, claim(ann)).At.UnixMilli())*time.Millisecond%time.Hour + 30*time.Second)
	first := s.allowed(claim(ann), 1)
	s.Advance(61*time.Minute - 20*time.Second) // its bucket has left, and its note has not expired
	s.peek(t, claim(eve))
	s.Advance(20*time.Second - 61*time.Minute)
	open := 0
	for s.take(t, claim(bob)).Allowed {
		open++
	}
	s.refund(t, claim(ann), first.Permit)
	for s.take(t, claim(eve)).Allowed {
		open++
	}
	if open > 2 {
		t.Fatalf("%d are open of 2", open)
	}
}

// conversionOnceAcrossAJump: a subject is counted once also if the clock jumps out of the window and back.
func conversionOnceAcrossAJump(t *testing.T, s *suite) {
	l := converting("jump", 2, time.Hour, 50)
	k, ann, eve := s.key(), s.key(), s.key()
	claim := func(subject limiter.Key) []limiter.Claim { return valued(l, k, subject) }
	s.allowed(claim(ann), 1)
	s.returns([]*limiter.Limit{l}, ann, 1)
	for range 2 {
		s.Advance(61 * time.Minute)
		s.returns([]*limiter.Limit{l}, ann, 0)
		s.Advance(-59 * time.Minute)
		s.allowed(claim(ann), 1)
		s.returns([]*limiter.Limit{l}, ann, 1)
	}
	s.wantOpen(claim(eve), 0, 3, 1)
	s.Advance(2 * time.Hour)
	s.allowed(claim(ann), 1)
	s.returns([]*limiter.Limit{l}, ann, 1)
	s.wantOpen(claim(eve), 0, 3, 1)
}

// conversionRandom: whatever happens, no more is open at a grant than exact times allow, and what is refused
// would be refused with times that are wrong by a bucket.
func conversionRandom(t *testing.T, s *suite) {
	seed := historySeed()
	r := rand.New(rand.NewPCG(seed, 2))
	granted, refused := 0, 0
	for round := range histories(min(150, 3+s.steps()/4)) {
		m := &conversionModel{limit: converting(fmt.Sprint("random", round), 1+r.Int64N(12), s.MinWindow+time.Duration(1+r.IntN(200_000))*time.Millisecond, 1+r.IntN(100))}
		window := m.limit.Rate.Window
		m.key, m.subjects, m.steps = s.key(), make([]limiter.Key, 3+r.IntN(30)), round%3 == 2
		for i := range m.subjects {
			m.subjects[i] = s.key()
		}
		for step := range 150 {
			if s.Disturb != nil && r.IntN(50) == 0 && s.Disturb() {
				m.taken, m.confirmed = nil, nil
			}
			if m.steps && r.IntN(20) == 0 {
				s.Advance(-time.Duration(r.Int64N(2*window.Milliseconds())) * time.Millisecond)
			}
			s.Advance(time.Duration(r.Int64N(max(1, window.Milliseconds()/int64(1+r.IntN(60))))) * time.Millisecond)
			if s.conversionStep(t, r, m); t.Failed() {
				t.Fatalf("seed %d, round %d, step %d", seed, round, step)
			}
		}
		granted, refused = granted+m.granted, refused+m.refused
	}
	t.Logf("seed %d: %d granted, %d refused", seed, granted, refused)
	if granted < 10 || refused < 10 {
		t.Errorf("%d granted and %d refused say little", granted, refused)
	}
}

// histories is the number of random histories: WEIR_HISTORIES, or so many.
func histories(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("WEIR_HISTORIES")); err == nil {
		return n
	}
	return usual
}

// historySeed is the seed of random histories: WEIR_SEED, to repeat what failed, or any.
func historySeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// conversionStep takes, refunds or returns something, in the store and the model.
func (s *suite) conversionStep(t *testing.T, r *rand.Rand, m *conversionModel) {
	subject := r.IntN(len(m.subjects))
	claims := []limiter.Claim{{Limit: m.limit, Key: m.key, Cost: 1 + r.Int64N(min(3, m.limit.Rate.Count)), Value: m.subjects[subject]}}
	bucket := (m.limit.Rate.Window.Milliseconds() + 59) / 60
	d := s.peek(t, claims)
	now := d.At.UnixMilli()
	m.observe(now, m.taken)
	switch r.IntN(4) {
	case 0:
		n, err := s.admin().Return(t.Context(), []*limiter.Limit{m.limit}, m.subjects[subject])
		if want := m.returnAll(now, subject); err != nil || n > want || n < want && !m.steps {
			t.Errorf("returned permits of %d decisions, %v; want %d", n, err, want)
		}
		if n > 0 {
			m.confirm(now, subject)
		}
	case 1:
		if i := len(m.taken) - 1 - r.IntN(4); i >= 0 { // one of the latest is refunded, maybe again
			own := claims[0]
			own.Cost, own.Value = m.taken[i].n, m.subjects[m.taken[i].subject]
			s.refund(t, []limiter.Claim{own}, m.taken[i].permit)
			m.taken[i].closed = true
		}
	default:
		d := s.take(t, claims)
		cost := claims[0].Cost
		switch {
		case d.Allowed && !m.allows(now, 0, cost):
			t.Errorf("granted %+v; the bound does not hold", d)
		case !d.Allowed && m.allows(now, bucket, cost) && !m.steps:
			t.Errorf("refused %+v, although there is room by more than a bucket", d)
		case d.Allowed:
			m.granted++
			m.observe(now, m.confirmed) // a store need not write more than what it grants
			m.taken = append(m.taken, conversionTake{at: now, noted: now, n: cost, subject: subject, permit: d.Permit})
		default:
			if m.refused++; m.refused%7 == 0 && !m.steps {
				s.checkWait(t, claims, d.Wait)
			}
		}
	}
}

// checkWait checks that a retry after the wait is granted, and one a millisecond earlier is not.
func (s *suite) checkWait(t *testing.T, claims []limiter.Claim, wait time.Duration) {
	t.Helper()
	s.Advance(wait - time.Millisecond)
	if d := s.peek(t, claims); d.Outcomes[0].Allowed {
		t.Errorf("allowed 1ms before the wait of %v: %+v", wait, d)
	}
	s.Advance(time.Millisecond)
	if d := s.peek(t, claims); !d.Outcomes[0].Allowed {
		t.Errorf("refused after the wait of %v: %+v", wait, d)
	}
}

// A conversionModel knows the time of everything.
type conversionModel struct {
	limit     *limiter.Limit
	taken     []conversionTake
	confirmed []conversionTake // of whom
	key       limiter.Key
	subjects  []limiter.Key
	granted   int
	refused   int
	steps     bool // the clock is set back now and then
}

type conversionTake struct {
	at, n   int64
	noted   int64 // the first at
	subject int
	permit  limiter.Permit
	closed  bool // refunded or returned
	left    bool // the window, and does not come back when the clock is set back
}

// state returns how much is open at now and how many subjects were confirmed, with what is taken counted
// for longer by late, and confirmations for less.
func (m *conversionModel) state(now, late int64) (open, v int64) {
	window := m.limit.Rate.Window.Milliseconds()
	for _, t := range m.taken {
		if !t.closed && !t.left && t.at > now-window-late {
			open += t.n
		}
	}
	subjects := map[int]bool{}
	for _, c := range m.confirmed {
		if !c.left && c.at > now-window+late {
			subjects[c.subject] = true
		}
	}
	return open, int64(len(subjects))
}

// observe is for a clock that was set back, maybe to now: what is later in all happened now, and what has left
// the window has left it for good.
func (m *conversionModel) observe(now int64, all []conversionTake) {
	for i := range all {
		e := &all[i]
		e.at = min(e.at, now)
		e.left = e.left || m.steps && e.at <= now-m.limit.Rate.Window.Milliseconds()
	}
}

// allows reports whether cost more may be open.
func (m *conversionModel) allows(now, late, cost int64) bool {
	open, v := m.state(now, late)
	p := int64(m.limit.Conversion)
	return open+cost <= m.limit.Rate.Count+v*(100-p)/p
}

// returnAll closes what is open of a subject.
func (m *conversionModel) returnAll(now int64, subject int) (decisions int) {
	window := m.limit.Rate.Window.Milliseconds()
	bucket := (window + 59) / 60
	for i := range m.taken {
		t := &m.taken[i]
		if t.subject == subject && !t.closed && t.noted-t.noted%bucket+bucket-1 > now-window {
			t.closed = true
			decisions++
		}
	}
	return decisions
}

// confirm confirms a subject at now.
func (m *conversionModel) confirm(now int64, subject int) {
	m.confirmed = append(m.confirmed, conversionTake{at: now, subject: subject})
}
