package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
)

const (
	// conversionInterval is the pause between two looks at the conversions, for which all nodes are asked.
	conversionInterval = 5 * time.Second
	// maxSentKeys is the maximum number of keys of one limit in an alert.
	maxSentKeys = 5
)

// A SentKey is a key in an alert about a conversion, with its requests within the longest window of its limit.
type SentKey struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"` // the hash of the key in the log
	Masked string `json:"masked,omitempty"`
	Sent   int64  `json:"sent"`
	Used   int64  `json:"used"`
}

// ConversionTask returns the leader task that raises the alerts about conversions; that of Task sends them.
func (a *Alerter) ConversionTask() Task {
	return Task{Name: "conversion", Every: conversionInterval, Run: a.raiseConversion}
}

func (a *Alerter) raiseConversion(ctx context.Context, t Term) (string, error) {
	rules := a.rules()
	if rules.Webhook == "" || rules.Conversion == 0 {
		return "", nil
	}
	limits, err := a.sends(ctx)
	if err != nil {
		return "", err
	}
	now, err := a.store.now(ctx)
	if err != nil {
		return "", err
	}
	raised, err := a.queueAll(ctx, t, rules, findConversions(rules, limits, now.UTC()))
	if raised == 0 {
		return "", err
	}
	return fmt.Sprintf("raised %d", raised), err
}

// findConversions returns an alert for each limit with a key that has sent as much as its rate allows, of which a smaller part
// than that of rules was used. It is about the key with most unused requests.
func findConversions(rules config.Alerts, limits []sends.LimitCounts, at time.Time) (all []Alert) {
	for _, l := range limits {
		low := slices.DeleteFunc(slices.Clone(l.Keys), func(k sends.KeyCounts) bool {
			return k.Unknown != "" || k.Sent < k.Rated || 100*k.Used >= rules.Conversion*k.Sent
		})
		if len(low) == 0 {
			continue
		}
		slices.SortStableFunc(low, func(a, b sends.KeyCounts) int { return cmp.Compare(b.Sent-b.Used, a.Sent-a.Used) })
		first := low[0]
		a := Alert{
			ID: rand.Text(), Kind: KindConversion, Route: l.Route, Limit: l.Limit, Window: l.Window, At: at,
			Count: first.Used, Of: first.Sent, Key: first.Hash, Masked: first.Masked, Low: sentKeys(l.Limit, low),
			Text: fmt.Sprintf("Weir: of %d requests of %s in %s, %d were used, limit %s.", first.Sent, cmp.Or(first.Masked, first.Hash), l.Window, first.Used, named(l.Limit, l.Route)),
		}
		for _, other := range limits {
			if other.Route == l.Route && other.Limit != l.Limit {
				a.Beside = append(a.Beside, sentKeys(other.Limit, other.Keys)...)
			}
		}
		all = append(all, a)
	}
	return all
}

// sentKeys returns the first of the keys of a limit, for an alert.
func sentKeys(limit string, keys []sends.KeyCounts) (all []SentKey) {
	for _, k := range keys[:min(len(keys), maxSentKeys)] {
		all = append(all, SentKey{Limit: limit, Key: k.Hash, Masked: k.Masked, Sent: k.Sent, Used: k.Used})
	}
	return all
}
