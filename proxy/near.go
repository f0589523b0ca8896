package proxy

import (
	"sync"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// nearFrom is the least count of a rate of which a key's use is told: with a
	// smaller one it is nothing out of the ordinary to use it up.
	nearFrom = 100
	// maxNear is how many limits are told of at a time.
	maxNear = 50
)

// A Near is a key that has used most of a limit.
type Near struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Window string `json:"window"`
	Used   int64  `json:"used"`
	Of     int64  `json:"of"`
	Key    string `json:"key"`              // the beginning of its hash, as in the log
	Masked string `json:"masked,omitempty"` // of a sensitive key
}

// alerts say what is worth being told.
type alerts config.Alerts

// near is so many permits of a rate that a key with less has used most of it; 0
// when nobody is told. Limits in shadow mode are on trial and not told of.
func (a alerts) near(rate limiter.Rate, mode config.Mode) int64 {
	if a.Webhook == "" || rate.Count < nearFrom || mode != config.Enforce {
		return 0
	}
	used := (rate.Count*a.Used + 99) / 100
	return rate.Count - used + 1
}

// A nearby remembers which limits have been used up most, and by whom, since it
// was asked last. A request never waits for it: when another one is just
// writing, this one goes unnoticed, and the next will do.
type nearby struct {
	mu   sync.Mutex      // guards what follows
	most map[string]Near // by the window's name
}

func newNearby() *nearby { return &nearby{most: map[string]Near{}} }

// note looks at what the store has decided.
func (n *nearby) note(q *admission) {
	for i := range q.decision.Outcomes {
		if w := q.claims.windows[i]; q.decision.Outcomes[i].Remaining < w.near && !q.decision.Outcomes[i].Unknown {
			n.write(q, i, w)
		}
	}
}

func (n *nearby) write(q *admission, i int, w *window) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	used := w.Rate.Count - max(q.decision.Outcomes[i].Remaining, 0)
	known, found := n.most[w.Name]
	if used <= known.Used || !found && len(n.most) >= maxNear {
		return
	}
	near := Near{Route: q.route.Name, Limit: w.of.Name, Window: limiter.WindowName(w.Rate.Window), Used: used, Of: w.Rate.Count}
	near.Key, near.Masked = q.names.logKey(q.claims.claims[i].Key)
	n.most[w.Name] = near
}

// drain is what there is to tell, and forgets it.
func (n *nearby) drain() []Near {
	n.mu.Lock()
	most := n.most
	n.most = map[string]Near{}
	n.mu.Unlock()
	all := make([]Near, 0, len(most))
	for _, near := range most {
		all = append(all, near)
	}
	return all
}

// Near are the keys that have used most of a limit since it was asked last: of
// each limit and window the one that has used most. With no one to be told there
// are none.
func (p *Proxy) Near() []Near { return p.admitter.nearby.drain() }

// Alerts say who is told when limits are used up, by the configuration that is
// served now.
func (p *Proxy) Alerts() config.Alerts { return p.current.Load().config.Alerts }
