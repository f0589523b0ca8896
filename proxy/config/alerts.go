package config

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// Alerts configure the alerts about exhausted limits.
type Alerts struct {
	Webhook string // a URL; empty: no alerts
	Secret  string // signs alerts; empty: no signature
	Refused int64  // refusals of a limit within a minute that cause an alert, at least 1; at least 10 with RefusedShare
	// RefusedShare is the percentage of a limit's decisions within a minute that must be refusals as well; 0 for any.
	RefusedShare int64
	Used         int64         // percentage of a rate used by a key that causes an alert, 1 to 100
	Repeat       time.Duration // minimum time between alerts about one limit, at least two minutes
}

// alerts compiles the alerts section.
func (r *loader) alerts(f *alertsForm) Alerts {
	a := Alerts{Webhook: string(f.Webhook), Secret: string(f.Secret), Repeat: time.Duration(f.Repeat)}
	a.Refused, a.RefusedShare = f.Refused.value()
	percent, is := strings.CutSuffix(f.Used, "%")
	n, err := strconv.Atoi(percent)
	if f.Used != "" && (!is || err != nil || n < 1 || n > 100 || !form.IsWhole(percent)) {
		r.Wrong(&f.Used, form.Quote(f.Used)+" is not a percentage", "write 1% to 100%")
	}
	a.Used = int64(n)
	if a.Repeat > 0 && a.Repeat < 2*time.Minute {
		r.Wrong(&f.Repeat, "is too short, alerts look at two minutes", "write at least 2m")
	}
	if f.Webhook == "" {
		if f.Secret != "" {
			r.Warn(&f.Secret, "there is no webhook that anything is sent to", "write webhook: beside it")
		}
		return a
	}
	to, err := url.Parse(string(f.Webhook))
	switch {
	case err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "":
		r.Wrong(&f.Webhook, "is not the URL of a webhook", "write for example https://hooks.example.com/weir")
		return a
	case to.User != nil:
		r.Wrong(&f.Webhook, "has a password", "leave it out: the receiver knows Weir by the signature of secret")
	case to.Scheme == "http" && !loopback(to.Hostname()):
		r.Warn(&f.Webhook, "alerts are sent without TLS", "write https://")
	}
	if n := len(f.Secret); n > 0 && n < 16 {
		r.Warn(&f.Secret, "the secret is short enough to guess", "use 16 characters or more, made at random")
	}
	if f.Secret == "" {
		r.Warn(&f.Webhook, "the receiver cannot tell whether an alert is from Weir", "write secret: beside it, made at random")
	}
	return a
}

// loopback reports whether host is this machine.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// A threshold is a number of requests, or a percentage of them.
type threshold string

// thresholdForm is what a threshold looks like.
var thresholdForm = regexp.MustCompile(`^(?:[1-9][0-9]{0,8}|(?:[1-9][0-9]?|100)%)$`)

// Check is form.Checked.
func (threshold) Check(text string) error {
	if !thresholdForm.MatchString(text) {
		return errors.New(form.Quote(text) + " is neither a number of requests nor a percentage")
	}
	return nil
}

// Wanted is form.Checked.
func (threshold) Wanted() (kind, instead string) {
	return "a number or a percentage", "write for example 100 or 5%"
}

// MarshalYAML writes t as it is read.
func (t threshold) MarshalYAML() (any, error) {
	if n, err := strconv.Atoi(string(t)); err == nil {
		return n, nil
	}
	return string(t), nil
}

// leastShare is the number of refusals below which a percentage says little.
const leastShare = 10

// value returns the least number of requests, and the percentage, 0 for none.
func (t threshold) value() (count, percent int64) {
	text, share := strings.CutSuffix(string(t), "%")
	n, _ := strconv.ParseInt(text, 10, 64) // checked, or already reported
	if share {
		return leastShare, n
	}
	return n, 0
}
