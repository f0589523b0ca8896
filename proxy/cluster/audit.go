package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// AuditRetention is how long audit entries are kept, and MaxAuditEntries how many; beyond
	// that the oldest are deleted. An entry takes some 400 bytes, and at most 4 KB.
	AuditRetention  = 30 * 24 * time.Hour
	MaxAuditEntries = 20_000
	// maxAuditText is the maximum length of each text in bytes, and maxAuditNames the maximum
	// number of limits in an entry; dots stand for what is beyond.
	maxAuditText  = 500
	maxAuditNames = 50
	// maxUnwritten is how many entries are kept while Redis is unreachable; more
	// are in the log only.
	maxUnwritten = 1000
	// maxAuditPage is the maximum number of entries in a page.
	maxAuditPage = 500
)

// AuditOf returns the entry for a change of a key; err is set if it failed.
func AuditOf(who string, c view.KeyChange, r view.KeyResult, err error) view.AuditEntry {
	e := view.AuditEntry{Who: who, Action: string(c.Action), Permits: c.Permits, Reason: c.Reason}
	if c.Action == view.KeyBan || c.Action == view.KeyAssign {
		e.For = c.For.String()
	}
	if c.Action == view.KeyAssign {
		e.Detail = c.Plan
	}
	if err != nil {
		e.Error = proxy.ErrorText(err)
		return e
	}
	e.OneNode, e.Behind = !r.Everywhere && len(r.Behind) == 0, r.Behind
	if granted := r.Granted(); c.Action == view.KeyGrant && granted < c.Permits && !r.Later {
		e.Detail = fmt.Sprintf("granted %d, because no more were used", granted)
	}
	changed := r.Changed
	if some := r.Affected(); len(some) > 0 && c.Action != view.KeyGrant {
		changed = some
	}
	if e.Limits = view.Each(changed, view.LimitStanding.FullName); len(changed) > 0 {
		e.Masked, e.Hash = changed[0].Logged, changed[0].Hash
	}
	return e
}

// An Audit is the audit trail: each action of an operator is logged, and stored for
// AuditRetention where all nodes can read it. It is safe for concurrent use.
type Audit struct {
	node  string
	log   func(view.AuditEntry)
	state state

	mu        sync.Mutex // guards what follows; never held over I/O
	unwritten []unwrittenEntry
	writing   bool
}

// A Later says where a change holds that waits for Redis, and what has become of it.
type Later struct {
	Where   string
	Settled func() (settled, everywhere bool)
}

// An unwrittenEntry is an entry that is not stored yet. One of a change that waits for Redis is stored when
// that has settled, so that it tells on which nodes the change holds.
type unwrittenEntry struct {
	view.AuditEntry
	later *Later // nil if nothing waits
}

// settled reports whether e can be stored, and completes it if so.
func (e *unwrittenEntry) settled(now time.Time) bool {
	if e.later == nil {
		return true
	}
	settled, everywhere := e.later.Settled()
	if !settled {
		return false
	}
	holds := "on this node only: it was over, or could not be applied, when redis was back"
	if everywhere {
		e.OneNode, holds = false, "on all nodes since "+now.UTC().Format(time.DateTime)+" UTC, when redis was back"
	}
	e.Detail = joined(strings.TrimSuffix(strings.TrimSuffix(e.Detail, e.later.Where), ", "), holds)
	e.later = nil
	return true
}

// joined joins two texts of which the first may be empty.
func joined(a, b string) string { return strings.TrimPrefix(a+", "+b, ", ") }

// NewAudit returns the audit trail of a node of a cluster or, if rdb is nil, of a
// single process. Each entry is passed to log first.
func NewAudit(rdb redis.UniversalClient, prefix, node string, log func(view.AuditEntry)) *Audit {
	return &Audit{node: node, log: log, state: newState(rdb, prefix)}
}

// Record adds the time and this node to e, and stores it. After an error the entry is
// only in the log; it is stored with the next one, or by Flush. The entry of a change that waits for
// Redis, with later, is stored when that is settled.
func (a *Audit) Record(ctx context.Context, e view.AuditEntry, later *Later) error {
	e.ID, e.At, e.Node = "", time.Now().UTC().Truncate(time.Millisecond), a.node
	if later != nil {
		e.Detail = joined(e.Detail, later.Where)
	}
	e = bounded(e)
	a.log(e)
	e.ID = strconv.FormatInt(time.Now().UnixNano(), 36) // by which audit.lua knows it again; what is read has that of Redis
	a.mu.Lock()
	if a.unwritten = append(a.unwritten, unwrittenEntry{e, later}); len(a.unwritten) > maxUnwritten {
		a.unwritten = slices.Delete(a.unwritten, 0, len(a.unwritten)-maxUnwritten)
	}
	a.mu.Unlock()
	return a.Flush(ctx)
}

// Flush stores the entries that could not be stored before, in order, without those of changes that still wait
// for Redis. It returns at once if another call is doing that.
func (a *Audit) Flush(ctx context.Context) error {
	return a.flush(ctx, func(e *unwrittenEntry) bool { return e.settled(time.Now()) })
}

// FlushAll stores all entries, for the last time: changes that still wait are lost.
func (a *Audit) FlushAll(ctx context.Context) error {
	return a.flush(ctx, func(*unwrittenEntry) bool { return true })
}

func (a *Audit) flush(ctx context.Context, ready func(*unwrittenEntry) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing {
		return nil
	}
	a.writing = true
	defer func() { a.writing = false }()
	for i := 0; i < len(a.unwritten); {
		if !ready(&a.unwritten[i]) {
			i++
			continue
		}
		e := a.unwritten[i]
		a.unwritten = slices.Delete(a.unwritten, i, i+1)
		a.mu.Unlock()
		err := a.state.write(context.WithoutCancel(ctx), bounded(e.AuditEntry))
		a.mu.Lock()
		if err != nil {
			a.unwritten = slices.Insert(a.unwritten, min(i, len(a.unwritten)), e)
			return fmt.Errorf("write an audit entry: %w", err)
		}
	}
	return nil
}

// Page returns at most n (and at most 500) entries before the one with that id, newest
// first; an empty id starts with the newest.
func (a *Audit) Page(ctx context.Context, before string, n int) (view.Audit, error) {
	n = min(max(n, 1), maxAuditPage)
	entries, err := a.state.page(ctx, before, n+1)
	if err != nil {
		return view.Audit{}, fmt.Errorf("read audit entries: %w", err)
	}
	p := view.Audit{Entries: entries}
	if len(entries) > n {
		p.Entries, p.Next = entries[:n], entries[n-1].ID
	}
	return p, nil
}

// bounded truncates the texts of e.
func bounded(e view.AuditEntry) view.AuditEntry {
	for _, text := range []*string{&e.Who, &e.Address, &e.Action, &e.Masked, &e.Hash, &e.Detail, &e.Reason, &e.Error} {
		if len(*text) > maxAuditText {
			*text = (*text)[:maxAuditText] + "..."
		}
		*text = strings.ToValidUTF8(*text, "")
	}
	if len(e.Limits) > maxAuditNames {
		e.Limits = append(slices.Clone(e.Limits[:maxAuditNames]), "...")
	}
	return e
}

// ErrAuditID reports an invalid cursor.
var ErrAuditID = errors.New("not the id of an audit entry")

// streamID matches the id of an entry of a Redis stream.
var streamID = regexp.MustCompile(`^[0-9]{1,15}-[0-9]{1,15}$`)

// write implements state, with a Redis stream. The time of an entry is the time on its node; its
// position in the stream is the order of arrival.
func (r redisState) write(ctx context.Context, e view.AuditEntry) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	return r.run(ctx, "audit", []string{"audit"}, encode(e), AuditRetention.Milliseconds(), MaxAuditEntries).Err()
}

// page implements state.
func (r redisState) page(ctx context.Context, before string, n int) ([]view.AuditEntry, error) {
	end := cmp.Or(before, "+")
	switch {
	case before != "" && !streamID.MatchString(before):
		return nil, ErrAuditID
	case strings.Trim(before, "0-") != "": // Redis refuses to exclude the first id, 0-0, which no entry has
		end = "(" + before
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	oldest := strconv.FormatInt(now.Add(-AuditRetention).UnixMilli(), 10)
	messages, err := r.rdb.XRevRangeN(ctx, r.prefix+"audit", end, oldest, int64(n)).Result()
	if err != nil {
		return nil, err
	}
	entries := make([]view.AuditEntry, len(messages))
	for i, m := range messages {
		text, _ := m.Values["entry"].(string)
		if entries[i], err = decode[view.AuditEntry](text); err != nil {
			return nil, err
		}
		entries[i].ID = m.ID
	}
	return entries, nil
}
