package cluster

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

// A state is what all nodes have in common: the alerts to be sent, the audit trail, the election of the leader, and the
// reports of the nodes with their sums, and values by name, of which the first claim wins.
type state interface {
	// raise queues a, unless an alert with the same subject was raised less than
	// repeat ago; full reports a full queue.
	raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error)
	// next returns the first alert, as JSON; "" if there is none.
	next(ctx context.Context) (text string, err error)
	// done removes the alert that next has returned.
	done(ctx context.Context, t Term, text string) error

	write(ctx context.Context, e view.AuditEntry) error
	// page returns at most n entries before the one with that id, newest first; an
	// empty id starts with the newest.
	page(ctx context.Context, before string, n int) ([]view.AuditEntry, error)

	// lead calls work each time this node becomes the leader, until ctx is
	// done.
	lead(ctx context.Context, o LeaderOptions, work func(context.Context, Term)) error
	// note stores the result of a run. It returns ErrDeposed if another node is
	// the leader.
	note(ctx context.Context, t Term, r view.TaskRun) error
	current(ctx context.Context) (view.Leadership, error)

	now(ctx context.Context) (time.Time, error)
	// report replaces the report of node for a minute, and returns the state's
	// time. After errClosed it must not be retried.
	report(ctx context.Context, node string, minute int64, r minuteReport) (time.Time, error)
	// reports returns the reports of all nodes by node.
	reports(ctx context.Context, minute int64) (map[string]minuteReport, error)
	// addUp replaces the sums of minutes with reports that are not in them yet, and returns of how many. It
	// returns ErrDeposed if another node is the leader.
	addUp(ctx context.Context, t Term) (minutes int, err error)
	// sums returns the sums of the minutes from first to last; nil for a minute
	// without one.
	sums(ctx context.Context, first, last int64) ([][]Tally, error)

	// Claim stores value under a name for a minute, and returns nil. If there is a value already, it returns
	// that.
	Claim(ctx context.Context, name string, value []byte) ([]byte, error)
	// Put replaces a claim by a value that is kept for a day; no value removes it.
	Put(ctx context.Context, name string, value []byte) error
}

// memory stands in for Redis where there is a single process: it is the alert queue, the audit trail, the leadership, the
// statistics, and the values by name.
type memory struct {
	mu     sync.Mutex           // guards what follows
	raised map[string]time.Time // by subject of an alert: time until which it is not raised again
	queue  []string             // alerts, as JSON

	lastEntry int64 // id of the last one
	entries   []view.AuditEntry

	leader string // empty if there is none
	term   Term
	runs   map[string]view.TaskRun // by name

	minutes        map[int64]minuteReport // reports by minute in which something happened, each with its sum
	changedMinutes map[int64]bool         // changed since the last call of addUp

	values map[string]onceValue
	names  []string // of values, oldest first
}

// A onceValue is a value by name.
type onceValue struct {
	value []byte
	until time.Time
}

func newMemory() *memory {
	return &memory{
		raised: map[string]time.Time{}, runs: map[string]view.TaskRun{}, minutes: map[int64]minuteReport{}, changedMinutes: map[int64]bool{},
		values: map[string]onceValue{},
	}
}

// raise implements state.
func (m *memory) raise(_ context.Context, _ Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.raised, func(_ string, until time.Time) bool { return !now.Before(until) })
	if _, known := m.raised[a.subject()]; known {
		return false, false, nil
	}
	m.raised[a.subject()] = now.Add(repeat)
	if len(m.queue) >= maxQueuedAlerts {
		return false, true, nil
	}
	m.queue = append(m.queue, string(encode(a)))
	return true, false, nil
}

// next implements state.
func (m *memory) next(context.Context) (text string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		text = m.queue[0]
	}
	return text, nil
}

// done implements state.
func (m *memory) done(context.Context, Term, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = m.queue[1:] // only the task removes any
	return nil
}

// write implements state.
func (m *memory) write(_ context.Context, e view.AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastEntry++
	e.ID = strconv.FormatInt(m.lastEntry, 10)
	old := time.Now().Add(-AuditRetention)
	kept := m.entries // oldest first
	for len(kept) > 0 && (len(kept) >= MaxAuditEntries || kept[0].At.Before(old)) {
		kept = kept[1:]
	}
	m.entries = append(kept, e)
	return nil
}

// page implements state.
func (m *memory) page(_ context.Context, before string, n int) ([]view.AuditEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end, old := int64(0), time.Now().Add(-AuditRetention)
	if before != "" {
		var err error
		if end, err = strconv.ParseInt(before, 10, 64); err != nil {
			return nil, ErrAuditID
		}
	}
	found := []view.AuditEntry{}
	for _, e := range slices.Backward(m.entries) {
		if id, err := strconv.ParseInt(e.ID, 10, 64); err != nil || before != "" && id >= end || e.At.Before(old) {
			continue
		}
		if found = append(found, e); len(found) == n {
			break
		}
	}
	return found, nil
}

// lead implements state.
func (m *memory) lead(ctx context.Context, o LeaderOptions, work func(context.Context, Term)) error {
	t := Term{Token: 1, Since: time.Now().UTC()}
	m.setLeader(o.ID, t)
	work(ctx, t)
	m.setLeader("", Term{})
	return context.Cause(ctx)
}

func (m *memory) setLeader(node string, t Term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leader, m.term = node, t
}

// note implements state.
func (m *memory) note(_ context.Context, _ Term, r view.TaskRun) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[r.Task] = r
	return nil
}

// current implements state.
func (m *memory) current(context.Context) (view.Leadership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	runs := view.Each(slices.Sorted(maps.Keys(m.runs)), func(name string) view.TaskRun { return m.runs[name] })
	return view.Leadership{Node: m.leader, Token: m.term.Token, Since: m.term.Since, Tasks: runs}, nil
}

// now implements state.
func (m *memory) now(context.Context) (time.Time, error) { return time.Now(), nil }

// report implements state.
func (m *memory) report(_ context.Context, _ string, minute int64, r minuteReport) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Sub(minuteStart(minute)) > minuteOpenFor {
		return now, errClosed
	}
	m.minutes[minute], m.changedMinutes[minute] = r, true
	maps.DeleteFunc(m.minutes, func(m int64, _ minuteReport) bool { return now.Sub(minuteStart(m)) > StatisticsRetention })
	return now, nil
}

// reports implements state.
func (m *memory) reports(_ context.Context, minute int64) (map[string]minuteReport, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, there := m.minutes[minute]
	if !there {
		return nil, nil
	}
	return map[string]minuteReport{"": r}, nil
}

// addUp implements state.
func (m *memory) addUp(context.Context, Term) (minutes int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	minutes = len(m.changedMinutes)
	clear(m.changedMinutes)
	return minutes, nil
}

// sums implements state.
func (m *memory) sums(_ context.Context, first, last int64) ([][]Tally, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([][]Tally, last-first+1)
	for minute := first; minute <= last; minute++ {
		all[minute-first] = m.minutes[minute].Tallies
	}
	return all, nil
}

// Claim implements state.
func (m *memory) Claim(_ context.Context, name string, value []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	v, found := m.values[name]
	if found && now.Before(v.until) {
		return v.value, nil
	}
	if !found {
		m.names = append(m.names, name)
	}
	m.values[name] = onceValue{value, now.Add(claimTTL)}
	for len(m.names) > maxOnce {
		delete(m.values, m.names[0])
		m.names = m.names[1:]
	}
	return nil, nil
}

// Put implements state. A name may have been forgotten, because there were many others.
func (m *memory) Put(_ context.Context, name string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := time.Now()
	if len(value) > 0 {
		until = until.Add(onceTTL)
	}
	if _, found := m.values[name]; found {
		m.values[name] = onceValue{value, until}
	}
	return nil
}
