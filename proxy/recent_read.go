package proxy

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Decision is what was decided about one recent request.
type Decision struct {
	RequestID string    `json:"request_id"` // its first 48 bytes
	At        time.Time `json:"at"`         // when the request arrived
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // its first 96 bytes, redacted as in the log
	Status    int       `json:"status"`
	// Outcome is allowed, refused (by a limit, or for too many new keys), shadow_refused (allowed,
	// but a limit in shadow mode would have refused it), or rejected (not forwarded for another
	// reason).
	Outcome string `json:"outcome"`
	// Summary is a sentence: which limit refused, and when the same request would pass.
	Summary  string          `json:"summary"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`         // the limits evaluated, at most 8, those that decided first
	More     int             `json:"more,omitempty"` // the number of further limits
	List     string          `json:"list,omitempty"` // the list that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy that decided while the store was unreachable
	Upstream string          `json:"upstream,omitempty"`
	Error    string          `json:"error,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`  // the request repeats one that was counted
	Waited   bool            `json:"waited,omitempty"`    // the request waited for a permit
	Exempt   bool            `json:"exempt,omitempty"`    // no limit applies to the request
	BanBegan bool            `json:"ban_began,omitempty"` // this refusal started a ban
}

// A DecisionLimit is the decision of one rate about a request.
type DecisionLimit struct {
	Limit   string `json:"limit"`
	Rate    string `json:"rate"`    // the name in the log, such as phone-1h
	Permits string `json:"permits"` // 5/1h
	// Result is allowed, refused, shadow_refused, or not_asked if the limit was not evaluated
	// because another limit was known to refuse.
	Result string  `json:"result"`
	Banned bool    `json:"banned,omitempty"`
	Left   *int64  `json:"left,omitempty"`    // nil if unknown
	WaitMS float64 `json:"wait_ms,omitempty"` // until the same request would be allowed
	Key    string  `json:"key"`               // the name of the key
	Masked string  `json:"masked,omitempty"`
	Hash   string  `json:"hash,omitempty"` // the hash of the key in the log
	ID     string  `json:"id,omitempty"`   // the key id, see KeyPair.Value
}

// A DecisionQuery selects requests. Empty fields match all.
type DecisionQuery struct {
	RequestID string
	Route     string
	Limit     string // a limit that was evaluated; with Outcome, with that result
	Outcome   string // as Decision.Outcome
	Key       string // Hash or ID of a key
	Before    time.Time
	N         int // 100 if 0, at most 1000
}

// maxDecisions is the maximum number of results of one query.
const maxDecisions = 1000

// Decisions returns recent decisions of this node, newest first. It covers the last 6144 requests
// that were refused, or would have been in shadow mode, with at least 96 of each key and client,
// and the last 4096 others. A query delays requests only for the time of copying a part of the
// ring.
func (p *Proxy) Decisions(q DecisionQuery) []Decision {
	g := p.current.Load()
	if q.N <= 0 {
		q.N = 100
	}
	q.N = min(q.N, maxDecisions)
	found := p.shared.observer.recent.find(q, &g.redact)
	slices.SortFunc(found, func(a, b recentRecord) int { return cmp.Compare(b.began, a.began) })
	found = found[:min(len(found), q.N)]
	all := make([]Decision, len(found))
	for i := range found {
		all[i] = found[i].decision(g)
	}
	return all
}

// find returns copies of the records that match.
func (ring *recentRing) find(q DecisionQuery, r *redactor) (found []recentRecord) {
	hash := maphash.String(ring.seed, q.RequestID)
	for i := range ring.shards {
		set := &ring.shards[i]
		set.mu.Lock()
		for _, part := range [...]*recentPart{&set.refused, &set.allowed} {
			for j := range part.records {
				rec := &part.records[j]
				if rec.began != 0 && (q.RequestID == "" || rec.hasID(q.RequestID, hash)) && rec.matches(&q, r) {
					found = append(found, *rec)
				}
			}
		}
		set.mu.Unlock()
	}
	return found
}

// hasID reports whether a record has this request id, whose hash is given.
func (rec *recentRecord) hasID(id string, hash uint64) bool {
	if len(id) > recentID {
		return rec.idHash == hash
	}
	return rec.idHash == 0 && string(rec.id[:rec.idLen]) == id
}

// matches reports whether a record matches q, apart from the request id.
func (rec *recentRecord) matches(q *DecisionQuery, r *redactor) bool {
	switch {
	case q.Outcome != "" && rec.outcome.String() != q.Outcome,
		q.Route != "" && (rec.route == nil || rec.route.name != q.Route),
		!q.Before.IsZero() && rec.began >= q.Before.UnixNano(),
		q.Limit != "" && !rec.has(q.Limit, q.Outcome):
		return false
	}
	return q.Key == "" || slices.ContainsFunc(rec.keys[:rec.numKeys], func(k recentKey) bool {
		return r.key(k.key) == q.Key || r.keyID(k.key) == q.Key
	})
}

// has reports whether a limit was evaluated and, if outcome is that of a limit, had that result.
func (rec *recentRecord) has(limit, outcome string) bool {
	return slices.ContainsFunc(rec.claims[:rec.numClaims], func(c recentClaim) bool {
		if rec.route.windows[c.window].limit != limit {
			return false
		}
		return outcome != outcomeRefused.String() && outcome != outcomeShadow.String() || c.result() == outcome
	})
}

// result returns the name of the result of a rate.
func (c recentClaim) result() string {
	switch {
	case c.flags&claimUnknown != 0:
		return notAsked
	case c.flags&claimAllowed != 0:
		return allowed
	case c.flags&claimShadow != 0:
		return shadowRefused
	}
	return refused
}

// decision returns a record as operators see it.
func (rec *recentRecord) decision(g *generation) Decision {
	d := Decision{
		RequestID: string(rec.id[:rec.idLen]), At: time.Unix(0, rec.began).UTC(), Method: string(rec.method[:rec.methodLen]),
		Path: string(rec.path[:rec.pathLen]), Status: int(rec.status), Outcome: rec.outcome.String(), TookMS: ms(rec.took),
		Limits: make([]DecisionLimit, 0, rec.numClaims), More: int(rec.moreClaims), List: rec.list, NewKeys: rec.newKeys,
		Fallback: rec.fallback, Upstream: rec.upstream, Error: rec.err,
		Repeated: rec.flags&flagRepeated != 0, Waited: rec.flags&flagWaited != 0,
		Exempt: rec.flags&flagExempt != 0, BanBegan: rec.flags&flagBanBegan != 0,
	}
	if rec.flags&flagPersonal != 0 {
		d.Path = hidePersonal(d.Path)
	}
	if rec.route == nil {
		d.summarize()
		return d
	}
	d.Route = rec.route.name
	display := g.display()
	for _, c := range rec.claims[:rec.numClaims] {
		w := rec.route.windows[c.window]
		l := DecisionLimit{
			Limit: w.limit, Rate: w.rate, Permits: w.permits, Result: c.result(), Banned: c.flags&claimBanned != 0,
			WaitMS: float64(c.wait), Key: w.key,
		}
		if c.flags&(claimShadow|claimUnknown) == 0 {
			left := int64(c.remaining)
			l.Left = &left
		}
		if c.key < rec.numKeys {
			l.setKey(g, &rec.keys[c.key], display, w.shapes)
		}
		d.Limits = append(d.Limits, l)
	}
	d.summarize()
	return d
}

// setKey sets the fields that identify the key.
func (l *DecisionLimit) setKey(g *generation, k *recentKey, d key.Display, shapes []key.Shape) {
	l.Masked, l.Hash, l.ID = k.label.masked(d, shapes), g.redact.key(k.key), g.redact.keyID(k.key)
}

// keyByHash returns the key with the given hash in the log, if a recent request on this node had it.
func (p *Proxy) keyByHash(hash string) (limiter.Key, bool) {
	g := p.current.Load()
	o := p.shared.observer
	if k, found := o.recent.keyByHash(hash, &g.redact); found {
		return k, true
	}
	minute := o.minute(time.Now())
	for _, r := range g.routes {
		for _, l := range r.limits {
			if l.top == nil {
				continue
			}
			for _, h := range []limiter.HeavyHitters[limiter.Key, label]{l.top.refused.Last(minute, TopSlices), l.top.requests.Last(minute, TopSlices)} {
				for _, k := range h.Keys {
					if g.redact.key(k.Key) == hash {
						return k.Key, true
					}
				}
			}
		}
	}
	return limiter.Key{}, false
}

func (ring *recentRing) keyByHash(hash string, r *redactor) (limiter.Key, bool) {
	for _, rec := range ring.find(DecisionQuery{Key: hash}, r) {
		for _, k := range rec.keys[:rec.numKeys] {
			if r.key(k.key) == hash {
				return k.key, true
			}
		}
	}
	return limiter.Key{}, false
}
