package proxy

import (
	"errors"
	"net"
	"strconv"
	"strings"

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
