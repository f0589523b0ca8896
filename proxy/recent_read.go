package proxy

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Decision is what was decided about one request of the last minutes.
type Decision struct {
	RequestID string    `json:"request_id"` // the first 48 bytes of it
	At        time.Time `json:"at"`         // when it came
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // as the log shows it, the first 96 bytes of it
	Status    int       `json:"status"`
	// Outcome is allowed, refused (by a limit, or for too many new keys), shadow_refused
	// (it passed, and would not have if all limits were enforced), or rejected: no limit
	// refused it, and it was not forwarded anyway.
	Outcome  string          `json:"outcome"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`         // that were asked, 8 at most
	More     int             `json:"more,omitempty"` // limits beyond those
	List     string          `json:"list,omitempty"` // the one that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy that decided while the store could not
	Upstream string          `json:"upstream,omitempty"`
	Error    string          `json:"error,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`  // it repeats a counted request
	Waited   bool            `json:"waited,omitempty"`    // it waited for a permit
	Exempt   bool            `json:"exempt,omitempty"`    // no limit applied
	BanBegan bool            `json:"ban_began,omitempty"` // by this refusal
}

// A DecisionLimit is what one rate said of a request.
type DecisionLimit struct {
	Limit string `json:"limit"`
	Rate  string `json:"rate"` // phone-1h, as the log calls it
	// Result is allowed, refused, shadow_refused, or not_asked where another limit was
	// known to refuse.
	Result string  `json:"result"`
	Banned bool    `json:"banned,omitempty"`
	Left   *int64  `json:"left,omitempty"`    // absent where it is not known
	WaitMS float64 `json:"wait_ms,omitempty"` // until the same request would pass
	Key    string  `json:"key"`               // its name
	Masked string  `json:"masked,omitempty"`
	Hash   string  `json:"hash,omitempty"` // what the log calls the key
	ID     string  `json:"id,omitempty"`   // KeyPair.Value of it
}

// A DecisionQuery says which requests are looked for; fields that are empty match all.
type DecisionQuery struct {
	RequestID string
	Route     string
	Limit     string // that was asked; with an outcome, that had it
	Outcome   string // as Decision.Outcome
	Key       string // Hash or ID of a key
	Before    time.Time
	N         int // 100 when 0, and 1000 at most
}

// maxDecisions is how many are read at a time.
const maxDecisions = 1000

// Decisions are what was decided recently on this node, the last first. Of what was
// refused, or would have been in shadow mode, the last 6144 requests are known, of each
// key and client 96 at least; of others the last 4096. Looking costs requests nothing but
// a moment's wait.
func (p *Proxy) Decisions(q DecisionQuery) []Decision {
	g := p.current.Load()
	if q.N <= 0 {
		q.N = 100
	}
	q.N = min(q.N, maxDecisions)
	found := p.lasting.observer.recent.find(q, &g.redact)
	slices.SortFunc(found, func(a, b recentRecord) int { return cmp.Compare(b.began, a.began) })
	found = found[:min(len(found), q.N)]
	all := make([]Decision, len(found))
	for i := range found {
		all[i] = found[i].decision(g)
	}
	return all
}

// find copies the records that match.
func (ring *recentRing) find(q DecisionQuery, r *redactor) (found []recentRecord) {
	hash := maphash.String(ring.seed, q.RequestID)
	for i := range ring.sets {
		set := &ring.sets[i]
		set.mu.Lock()
		for _, part := range [...]*recentPart{&set.refused, &set.allowed} {
			for j := range part.records {
				one := &part.records[j]
				if one.began != 0 && (q.RequestID == "" || one.idHash == hash) && one.matches(&q, r) {
					found = append(found, *one)
				}
			}
		}
		set.mu.Unlock()
	}
	return found
}

// matches reports whether a record is one that q is about, its id left aside.
func (one *recentRecord) matches(q *DecisionQuery, r *redactor) bool {
	switch {
	case q.Outcome != "" && one.outcome.String() != q.Outcome,
		q.Route != "" && (one.route == nil || one.route.name != q.Route),
		!q.Before.IsZero() && one.began >= q.Before.UnixNano(),
		q.Limit != "" && !one.has(q.Limit, q.Outcome):
		return false
	}
	return q.Key == "" || slices.ContainsFunc(one.keyOf[:one.keys], func(k recentKey) bool {
		return r.key(k.key) == q.Key || r.keyID(k.key) == q.Key
	})
}

// has reports whether a limit was asked, and, with an outcome, said that.
func (one *recentRecord) has(limit, outcome string) bool {
	return slices.ContainsFunc(one.claim[:one.claims], func(c recentClaim) bool {
		if one.route.windows[c.window].limit != limit {
			return false
		}
		return outcome != outcomeRefused.String() && outcome != outcomeShadow.String() || c.result() == outcome
	})
}

// result is what people call what a rate said.
func (c recentClaim) result() string {
	switch {
	case c.flags&claimUnknown != 0:
		return "not_asked"
	case c.flags&claimAllowed != 0:
		return allowed
	case c.flags&claimShadow != 0:
		return shadowRefused
	}
	return refused
}

// decision is what people see of a record.
func (one *recentRecord) decision(g *generation) Decision {
	d := Decision{
		RequestID: string(one.id[:one.idLen]), At: time.Unix(0, one.began).UTC(), Method: string(one.method[:one.methodLen]),
		Path: string(one.path[:one.pathLen]), Status: int(one.status), Outcome: one.outcome.String(), TookMS: ms(one.took),
		Limits: make([]DecisionLimit, 0, one.claims), More: int(one.more), List: one.list, NewKeys: one.newKeys,
		Fallback: one.fallback, Upstream: one.upstream, Error: one.fault,
		Repeated: one.flags&flagRepeated != 0, Waited: one.flags&flagWaited != 0,
		Exempt: one.flags&flagExempt != 0, BanBegan: one.flags&flagBanBegan != 0,
	}
	if one.flags&flagPersonal != 0 {
		d.Path = withoutPersons(d.Path)
	}
	if one.route == nil {
		return d
	}
	d.Route = one.route.name
	display := g.display()
	for _, c := range one.claim[:one.claims] {
		w := one.route.windows[c.window]
		l := DecisionLimit{
			Limit: w.limit, Rate: w.rate, Result: c.result(), Banned: c.flags&claimBanned != 0,
			WaitMS: float64(c.wait), Key: w.key,
		}
		if c.flags&(claimShadow|claimUnknown) == 0 {
			left := int64(c.left)
			l.Left = &left
		}
		if c.key < one.keys {
			l.identify(g, &one.keyOf[c.key], display, w.shapes)
		}
		d.Limits = append(d.Limits, l)
	}
	return d
}

// identify says whose key it was.
func (l *DecisionLimit) identify(g *generation, k *recentKey, d key.Display, shapes []key.Shape) {
	l.Masked, l.Hash, l.ID = k.label.shown(d, shapes), g.redact.key(k.key), g.redact.keyID(k.key)
}

// keyOf is the key that the log calls so, if a request of the last minutes had it here.
func (p *Proxy) keyOf(hash string) (limiter.Key, bool) {
	g := p.current.Load()
	o := p.lasting.observer
	if k, found := o.recent.keyOf(hash, &g.redact); found {
		return k, true
	}
	minute := o.minute(time.Now())
	for _, r := range g.routes {
		for _, l := range r.limits {
			if l.top == nil {
				continue
			}
			for _, h := range []limiter.Heavy[limiter.Key, label]{l.top.refused.Last(minute, TopSlices), l.top.asked.Last(minute, TopSlices)} {
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

func (ring *recentRing) keyOf(hash string, r *redactor) (limiter.Key, bool) {
	for _, one := range ring.find(DecisionQuery{Key: hash}, r) {
		for _, k := range one.keyOf[:one.keys] {
			if r.key(k.key) == hash {
				return k.key, true
			}
		}
	}
	return limiter.Key{}, false
}
