package proxy

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// RateText returns a rate of l as operators write and read it: 5/1h, 400 EUR/1d of a budget, 4 at a time, or the
// steps of a cooldown.
func RateText(l *config.Limit, rate limiter.Rate) string {
	switch {
	case l.Algorithm.HasLeases():
		return strconv.FormatInt(rate.Count, 10) + " at a time"
	case l.Algorithm.HasSteps():
		var steps []string
		for _, s := range l.Steps {
			steps = append(steps, limiter.WindowName(s))
		}
		return strings.Join(steps, " ")
	}
	return l.RateText(rate)
}

// RateTexts returns all rates of l; a cooldown has one.
func RateTexts(l *config.Limit) []string {
	texts := []string{}
	for _, rate := range l.Rates {
		texts = append(texts, RateText(l, rate))
	}
	return texts
}

// An Amounts has numbers that are not plain ones: of a budget as money, 71.235 EUR, and of a cooldown the step that is
// used.
type Amounts struct {
	Most    string `json:"most,omitempty"`
	Used    string `json:"used"`
	Left    string `json:"left"`
	Granted string `json:"granted,omitempty"`
}

// amounts returns the numbers of w under l; nil if they are plain ones.
func (w WindowStanding) amounts(l *config.Limit) *Amounts {
	switch {
	case l.Algorithm.HasSteps() && !w.Unreadable:
		return &Amounts{Used: "step " + strconv.FormatInt(w.Used, 10), Left: strconv.FormatInt(w.Left, 10)}
	case l.Prices == nil:
		return nil
	}
	a := &Amounts{Most: l.Prices.Text(w.Most), Used: l.Prices.Text(w.Used), Left: l.Prices.Text(w.Left)}
	if w.Granted > 0 {
		a.Granted = l.Prices.Text(w.Granted)
	}
	return a
}

// Texts returns the numbers of w in their unit.
func (w WindowStanding) Texts() Amounts {
	if w.Amounts != nil {
		return *w.Amounts
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return Amounts{Most: text(w.Most), Used: text(w.Used), Left: text(w.Left), Granted: text(w.Granted)}
}

// amountText returns how numbers of permits of l are shown; nil if they are plain numbers.
func amountText(l *config.Limit) func(n int64) string {
	if l.Prices == nil {
		return nil
	}
	return l.Prices.Text
}

// ErrorText returns err for operators. Of an error about a store that cannot be reached it says what was to be done,
// and why it cannot be reached: "read nodes: redis is unreachable: no answer in time".
func ErrorText(err error) string {
	var away net.Error
	isAway := errors.As(err, &away)
	text := err.Error()
	if !isAway && !errors.Is(err, limiter.ErrUnavailable) {
		return text
	}
	what, _, _ := strings.Cut(text, ": ")
	what += ": "
	if strings.HasPrefix(text, limiter.ErrUnavailable.Error()) || strings.HasPrefix(text, "redis ") || isAway && text == away.Error() {
		what = "" // the error begins with that it cannot be reached
	}
	var at *net.OpError
	switch {
	case !isAway:
		_, cause, _ := strings.Cut(text, limiter.ErrUnavailable.Error()+": ")
		return strings.TrimSuffix(what+"the store is unreachable: "+cause, ": ")
	case away.Timeout():
		return what + "redis is unreachable: no answer in time"
	case errors.As(err, &at):
		return what + "redis is unreachable: " + at.Err.Error()
	}
	return what + "redis is unreachable: " + away.Error()
}

// A KeyResult is the result of a change. It does not contain the value of the key.
type KeyResult struct {
	KeyChange
	// Changed are the limits that were changed, and Skipped those that could not be.
	Changed []LimitStanding `json:"changed"` // their state after the change
	Skipped []SkippedLimit  `json:"skipped,omitempty"`
	Network *netip.Prefix   `json:"network,omitempty"` // that was banned or unbanned, in place of a key
	At      time.Time       `json:"at"`
	// Everywhere reports whether the change applies on all nodes. While Redis is unreachable, it
	// applies only on this node, as long as the node decides by itself. Later reports that it is
	// applied on all nodes when Redis is reachable again, if its time is not over and this node does not
	// end before.
	Everywhere bool `json:"everywhere"`
	Later      bool `json:"later,omitempty"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Now is whether requests with the key are refused after the change, also by what it did not change.
	Now KeyVerdict `json:"now"`

	deferral *deferral // of the limits whose change waits for the store
}

// Settled reports whether what waited for the store waits no longer, and whether all of it was applied on all
// nodes.
func (r KeyResult) Settled() (settled, everywhere bool) {
	if r.deferral == nil {
		return true, r.Everywhere
	}
	return r.deferral.left.Load() == 0, !r.deferral.lost.Load()
}

// Where says on which nodes the change applies.
func (r KeyResult) Where() string {
	if len(r.Behind) > 0 {
		return BehindText(r.Behind)
	}
	here := r.Network != nil || r.Action == KeyAssign || r.Action == KeyUnassign || slices.ContainsFunc(r.Changed, func(l LimitStanding) bool { return l.Store != "" })
	switch {
	case r.Everywhere:
		return "on all nodes"
	case r.Later && here:
		return "on this node now, on all nodes when redis is back"
	case r.Later:
		return "on all nodes when redis is back"
	}
	return "on this node only"
}

// BehindText says on which nodes a change holds that some have not confirmed.
func BehindText(nodes []string) string {
	return "on all nodes but " + strings.Join(nodes, ", ") + ", not heard from: they follow within seconds"
}

// Affected returns the limits under which there was something to change, and Unaffected the others.
func (r KeyResult) Affected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return l.Unaffected })
}

// Unaffected returns the limits under which the key had no ban to end, or nothing to reset.
func (r KeyResult) Unaffected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return !l.Unaffected })
}

// Granted returns the most permits that a grant has given back under one rate.
func (r KeyResult) Granted() (most int64) {
	for _, l := range r.Changed {
		for _, w := range l.Windows {
			most = max(most, w.Granted)
		}
	}
	return most
}

// A SkippedLimit is a limit that was not changed.
type SkippedLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Why   string `json:"why"`
}
