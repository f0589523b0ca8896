package config

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
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
	Used         []int64       // percentages of a rate used by a key that cause an alert, 1 to 100, ascending
	Conversion   int64         // percentage of the requests of a key that return_on must return, or else an alert is due, 1 to 99; 0 for any
	Repeat       time.Duration // minimum time between alerts about one limit, at least two minutes
}

// alerts compiles the alerts section.
func (r *loader) alerts(f *alertsForm) Alerts {
	a := Alerts{Webhook: string(f.Webhook), Secret: string(f.Secret), Repeat: time.Duration(f.Repeat)}
	a.Refused, a.RefusedShare = f.Refused.value()
	if r.Given(&f.Conversion) {
		a.Conversion = int64(r.percentage(&f.Conversion, 99))
	}
	for i := range f.Used {
		percent, is := strings.CutSuffix(f.Used[i], "%")
		n, err := strconv.Atoi(percent)
		switch {
		case f.Used[i] == "": // already reported
		case !is || err != nil || n < 1 || n > 100 || !form.IsWhole(percent):
			r.Wrong(&f.Used[i], form.Quote(f.Used[i])+" is not a percentage", "write 1% to 100%")
		case slices.Contains(a.Used, int64(n)):
			r.Wrong(&f.Used[i], f.Used[i]+" is given twice", "write it once")
		}
		a.Used = append(a.Used, int64(n))
	}
	if len(f.Used) == 0 && r.Valid(&f.Used) {
		r.Wrong(&f.Used, "there is no percentage", "write for example 80%, or [50%, 80%, 100%]")
	}
	slices.Sort(a.Used)
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

// MarshalYAML writes one percentage as it is usually written, and not as a list.
func (f alertsForm) MarshalYAML() (any, error) {
	type several alertsForm
	if len(f.Used) != 1 {
		return several(f), nil
	}
	return struct {
		Webhook secretURL `yaml:"webhook"`
		Secret  secret    `yaml:"secret"`
		Refused threshold `yaml:"refused"`
		Used    string    `yaml:"used"`

		Conversion string   `yaml:"conversion,omitempty"`
		Repeat     duration `yaml:"repeat"`
	}{f.Webhook, f.Secret, f.Refused, f.Used[0], f.Conversion, f.Repeat}, nil
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
