package proxy

import (
	"sync"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// nearFrom is the minimum count of a rate for which alerts are sent. Using up a smaller one is
	// not unusual.
	nearFrom = 100
	// maxNear is the maximum number of limits in one report.
	maxNear = 50
)

// A Near is a key that has used most of a limit.
type Near struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Window string `json:"window"`
	Used   int64  `json:"used"`
	Of     int64  `json:"of"`
	Key    string `json:"key"`              // the beginning of the key's hash, as in the log
	Masked string `json:"masked,omitempty"` // of a sensitive key
	Money  string `json:"money,omitempty"`  // of a budget, what is used of it: 320 EUR of 400 EUR
}

// alerts is the configuration of alerts.
type alerts config.Alerts

// near returns the number of remaining permits of a rate below which a key has used most of it; 0
// if there are no alerts. There are none for limits in shadow mode.
func (a alerts) near(rate limiter.Rate, mode config.Mode) int64 {
	if a.Webhook == "" || len(a.Used) == 0 || rate.Count < nearFrom || mode != config.Enforce {
		return 0
	}
	used := (rate.Count*a.Used[0] + 99) / 100
	return rate.Count - used + 1
}

// A nearLimits records, for each window, the key that has used most of it since the last report. It
// never blocks a request: if another request is writing, the update is skipped, and a later request
// makes it.
type nearLimits struct {
	mu       sync.Mutex      // guards what follows
	byWindow map[string]Near // by the window's name
}

func newNearLimits() *nearLimits { return &nearLimits{byWindow: map[string]Near{}} }

// record evaluates a decision of the store.
func (n *nearLimits) record(q *admission) {
	for i := range q.decision.Outcomes {
		if w := q.claims.windows[i]; q.decision.Outcomes[i].Remaining < w.near && !q.decision.Outcomes[i].Unknown {
			n.update(q, i, w)
		}
	}
}

func (n *nearLimits) update(q *admission, i int, w *window) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	used := w.Rate.Count - max(q.decision.Outcomes[i].Remaining, 0)
	known, found := n.byWindow[w.Name]
	if used <= known.Used || !found && len(n.byWindow) >= maxNear {
		return
	}
	near := Near{Route: w.of.Route, Limit: w.of.Name, Window: limiter.WindowName(w.Rate.Window), Used: used, Of: w.Rate.Count}
	near.Key, near.Masked = q.keyNamer.logKey(q.claims.claims[i].Key)
	if p := w.of.Prices; p != nil {
		near.Money = p.Text(used) + " of " + p.Text(w.Rate.Count)
	}
	n.byWindow[w.Name] = near
}

// drain returns the recorded keys and removes them.
func (n *nearLimits) drain() []Near {
	n.mu.Lock()
	most := n.byWindow
	n.byWindow = map[string]Near{}
	n.mu.Unlock()
	all := make([]Near, 0, len(most))
	for _, near := range most {
		all = append(all, near)
	}
	return all
}

// Near returns, for each limit and window, the key that has used most of it since the last call. It
// returns none if no alerts are configured.
func (p *Proxy) Near() []Near { return p.admitter.nearLimits.drain() }

// Alerts returns the configuration of alerts of the current generation.
func (p *Proxy) Alerts() config.Alerts { return p.current.Load().config.Alerts }
