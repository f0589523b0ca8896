package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
)

const (
	// AuditKept is how long it is known what operators did, and MostAudited how many
	// entries of that there are at a time; beyond it the oldest go. An entry takes some
	// 400 bytes, and never more than 4 KB.
	AuditKept   = 30 * 24 * time.Hour
	MostAudited = 20_000
	// maxAuditText is how many bytes of each text are kept, and maxAuditNames of how many limits.
	maxAuditText  = 500
	maxAuditNames = 50
	// maxUnwritten is how many entries wait for Redis; more are in the log only.
	maxUnwritten = 1000
	// maxAuditPage is how many entries are read at a time.
	maxAuditPage = 500
)

// An AuditEntry is what one operator did.
type AuditEntry struct {
	ID   string    `json:"id,omitempty"` // orders entries; given by the audit trail
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	// Who is the name of the operator's token, or local.
	Who string `json:"who"`
	// Address is that of the operator's connection.
	Address string `json:"address,omitempty"`
	// Action is what was done: reset, grant, ban or unban of a key; reload, push or
	// rollback of the configuration.
	Action string `json:"action"`
	// Of keys: how they are shown, what the log calls them, and which limits were
	// changed, as ROUTE.LIMIT. Never a value.
	Masked  string   `json:"masked,omitempty"`
	Hash    string   `json:"hash,omitempty"`
	Limits  []string `json:"limits,omitempty"`
	For     string   `json:"for,omitempty"`
	Permits int64    `json:"permits,omitempty"`
	// OneNode says that it was done on that node alone.
	OneNode bool   `json:"one_node,omitempty"`
	Detail  string `json:"detail,omitempty"` // of what is not done to a key
	Reason  string `json:"reason,omitempty"` // as the operator gives it
	Error   string `json:"error,omitempty"`  // why it was not done
}

// AuditOf is the entry of a change of a key; err is why it was not made.
func AuditOf(who string, c proxy.KeyChange, r proxy.KeyResult, err error) AuditEntry {
	e := AuditEntry{Who: who, Action: string(c.Action), Permits: c.Permits, Reason: c.Reason}
	if c.Action == proxy.KeyBan {
		e.For = c.For.String()
	}
	if err != nil {
		e.Error = err.Error()
		return e
	}
	e.OneNode = !r.Everywhere
	for i, l := range r.Changed {
		if i == 0 {
			e.Masked, e.Hash = l.Masked, l.Hash
		}
		e.Limits = append(e.Limits, l.Route+"."+l.Limit)
	}
	return e
}

// An AuditPage is a part of what operators did, the last first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"` // what to go on from; empty at the end
}

// An auditStore is where entries lie.
type auditStore interface {
	write(ctx context.Context, e AuditEntry) error
	// page is at most n entries, the last first, that came before the one with that id;
	// an empty id is the end.
	page(ctx context.Context, before string, n int) ([]AuditEntry, error)
}

// An Audit is the trail of what operators did: in the log, and for AuditKept where all
// nodes can read it. It is safe for concurrent use.
type Audit struct {
	node  string
	log   func(AuditEntry)
	store auditStore

	mu        sync.Mutex // guards what follows; never held over I/O
	unwritten []AuditEntry
	writing   bool
}

// NewAudit makes the trail of a node of a cluster, or, when rdb is nil, of a process
// that shares nothing. Each entry is given to log first.
func NewAudit(rdb redis.UniversalClient, prefix, node string, log func(AuditEntry)) *Audit {
	a := &Audit{node: node, log: log}
	if rdb == nil {
		a.store = &memoryAudit{}
	} else {
		a.store = newRedisAudit(rdb, prefix)
	}
	return a
}

// Record writes e down, with the time and this node. An error says that only the log has
// it by now; it is written with the next one, or by Flush.
func (a *Audit) Record(ctx context.Context, e AuditEntry) error {
	e.ID, e.At, e.Node = "", time.Now().UTC().Truncate(time.Millisecond), a.node
	e = e.bounded()
	a.log(e)
	a.mu.Lock()
	if a.unwritten = append(a.unwritten, e); len(a.unwritten) > maxUnwritten {
		a.unwritten = slices.Delete(a.unwritten, 0, len(a.unwritten)-maxUnwritten)
	}
	a.mu.Unlock()
	return a.Flush(ctx)
}

// Flush writes what could not be written before, in order. Whoever comes while another
// is writing leaves it to that one.
func (a *Audit) Flush(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing {
		return nil
	}
	a.writing = true
	defer func() { a.writing = false }()
	for len(a.unwritten) > 0 {
		e := a.unwritten[0]
		a.unwritten = a.unwritten[1:]
		a.mu.Unlock()
		err := a.store.write(context.WithoutCancel(ctx), e)
		a.mu.Lock()
		if err != nil {
			a.unwritten = slices.Insert(a.unwritten, 0, e)
			return fmt.Errorf("write an audit entry: %w", err)
		}
	}
	return nil
}

// Page is what operators did before the entry with that id, the last first; an empty id
// begins at the end. It has n entries at most, and 500 whatever n is.
func (a *Audit) Page(ctx context.Context, before string, n int) (AuditPage, error) {
	n = min(max(n, 1), maxAuditPage)
	entries, err := a.store.page(ctx, before, n+1)
	if err != nil {
		return AuditPage{}, fmt.Errorf("read audit entries: %w", err)
	}
	p := AuditPage{Entries: entries}
	if len(entries) > n {
		p.Entries, p.Next = entries[:n], entries[n-1].ID
	}
	return p, nil
}

// bounded is e with no text longer than may be kept.
func (e AuditEntry) bounded() AuditEntry {
	for _, text := range []*string{&e.Who, &e.Address, &e.Action, &e.Masked, &e.Hash, &e.Detail, &e.Reason, &e.Error} {
		if len(*text) > maxAuditText {
			*text = (*text)[:maxAuditText]
		}
		*text = strings.ToValidUTF8(*text, "")
	}
	if len(e.Limits) > maxAuditNames {
		e.Limits = append(slices.Clone(e.Limits[:maxAuditNames]), "...")
	}
	return e
}
