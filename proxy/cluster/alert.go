package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// The kinds of alerts.
const (
	KindRefused = "refused" // a limit refused many requests within a minute
	KindUsed    = "used"    // a key used most of a limit
	// KindConversion is that few requests of a key were followed by a response of return_on.
	KindConversion = "conversion"
)

// An Alert is the message to a webhook. It holds the masked key and its hash,
// never the key.
type Alert struct {
	ID     string    `json:"id"` // stable across retries
	Kind   string    `json:"kind"`
	Text   string    `json:"text"` // the alert as a sentence
	Route  string    `json:"route"`
	Limit  string    `json:"limit"`
	Window string    `json:"window,omitempty"` // window of the rate
	At     time.Time `json:"at"`
	Count  int64     `json:"count"` // requests refused, permits used, or requests sent of which a response returned permits
	Of     int64     `json:"of"`    // threshold, or all requests if that is a share, or count of the rate, or requests sent
	Key    string    `json:"key,omitempty"`
	Masked string    `json:"masked,omitempty"`
	Share  int64     `json:"share,omitempty"` // the percentage that is used, if there are alerts about several
	// Low are, of an alert about a conversion, the keys of the limit below it, and Beside those of the other limits of the
	// route with most requests.
	Low    []SentKey `json:"low,omitempty"`
	Beside []SentKey `json:"beside,omitempty"`
}

// subject identifies what the alert is about: alerts with the same subject are
// deduplicated for a while.
func (a Alert) subject() string {
	about := []string{a.Kind, a.Route, a.Limit, a.Window}
	if a.Share > 0 {
		about = append(about, strconv.FormatInt(a.Share, 10))
	}
	return strings.Join(about, ":")
}

// repeat returns the minimum time between alerts with the subject of a: of one about several shares, the window
// of the rate.
func (a Alert) repeat(rules config.Alerts) time.Duration {
	if window, err := limiter.ParseDuration(a.Window); err == nil && a.Share > 0 {
		return window
	}
	return rules.Repeat
}

// named names a limit in a sentence.
func named(limit, route string) string {
	if route == "" {
		return limit + " of several routes"
	}
	return limit + " of route " + route
}

// findAlerts returns the alerts for the reports of one minute, in a fixed order.
func findAlerts(rules config.Alerts, reports map[string]minuteReport, at time.Time) []Alert {
	refused, decided, near := map[proxy.Series]int64{}, map[proxy.Series]int64{}, map[string]proxy.Near{}
	for _, r := range reports {
		for _, t := range r.Tallies {
			if t.Limit == "" {
				continue
			}
			switch t.Result {
			case "refused":
				refused[t.Series] += t.N
				fallthrough
			case "allowed":
				decided[proxy.Series{Route: t.Route, Limit: t.Limit}] += t.N
			}
		}
		for _, n := range r.Near {
			name := n.Route + ":" + n.Limit + ":" + n.Window
			if n.IsNearer(near[name]) {
				near[name] = n
			}
		}
	}
	var all []Alert
	for _, t := range tallies(refused) {
		of := decided[proxy.Series{Route: t.Route, Limit: t.Limit}]
		if t.N < rules.Refused.Count || 100*t.N < rules.Refused.Share*of {
			continue
		}
		a := Alert{
			Kind: KindRefused, Route: t.Route, Limit: t.Limit, At: at, Count: t.N, Of: rules.Refused.Count,
			Text: fmt.Sprintf("Weir: limit %s has refused %d requests within a minute.", named(t.Limit, t.Route), t.N),
		}
		if rules.Refused.Share > 0 {
			a.Of, a.Text = of, fmt.Sprintf("Weir: limit %s has refused %d of %d requests within a minute.", named(t.Limit, t.Route), t.N, of)
		}
		all = append(all, a)
	}
	for _, name := range slices.Sorted(maps.Keys(near)) {
		n := near[name]
		a := Alert{
			Kind: KindUsed, Route: n.Route, Limit: n.Limit, Window: n.Window, At: at, Count: n.Used, Of: n.Of, Key: n.Key, Masked: n.Masked,
			Text: fmt.Sprintf("Weir: a key has used %s in %s, limit %s.", cmp.Or(n.Money, fmt.Sprintf("%d of %d", n.Used, n.Of)), n.Window, named(n.Limit, n.Route)),
		}
		if len(rules.Used) == 1 {
			all = append(all, a)
			continue
		}
		for _, share := range rules.Used {
			if 100*n.Used >= share*n.Of {
				a.Share = share
				all = append(all, a)
			}
		}
	}
	for i := range all {
		all[i].ID = rand.Text()
	}
	return all
}

const (
	// alertInterval is the pause between two runs of the task.
	alertInterval = 2 * time.Second
	// maxQueuedAlerts is the length of the queue; more alerts are dropped.
	maxQueuedAlerts = 100
	// alertLifetime is how long sending an alert is retried.
	alertLifetime = time.Hour
	// minBackoff and maxBackoff bound the exponential backoff after a failure.
	minBackoff, maxBackoff = time.Second, time.Minute
)

// The results of an attempt to send an alert.
const (
	Sent    = "sent"
	Failed  = "failed"  // will be retried
	Dropped = "dropped" // will not be retried: refused by the webhook, too old, or the queue was full
)

// An Alerter sends alerts about exhausted limits to a webhook, once for all
// nodes. It uses the reports for the statistics, so it adds no cost to requests.
// For each limit an alert is raised at most once in the configured time, and sent
// until the webhook accepts it (at least once: if a leader dies after sending,
// the next leader sends it again, with the same id).
type Alerter struct {
	AlerterOptions
	state state
	hook  *webhook

	backoff     time.Duration // current backoff; 0 after a success
	nextAttempt time.Time     // time of the next attempt
}

// AlerterOptions configure an Alerter.
type AlerterOptions struct {
	Statistics *Statistics
	Rules      func() config.Alerts // called at each run: a reload may change them
	// Sends returns, for limits with return_on, the keys of which most was sent on all nodes, masked.
	Sends func(ctx context.Context) ([]sends.LimitCounts, error)
	// Done is called with the result of each attempt to send an alert: Sent,
	// Failed or Dropped.
	Done func(a Alert, result string, err error)
}

// NewAlerter returns an Alerter. It sends nothing before its Task runs.
func NewAlerter(o AlerterOptions) *Alerter {
	return &Alerter{AlerterOptions: o, state: o.Statistics.state, hook: newWebhook()}
}

// Task returns the leader task that raises and sends alerts.
func (a *Alerter) Task() Task { return Task{Name: "alerts", Every: alertInterval, Run: a.run} }

func (a *Alerter) run(ctx context.Context, t Term) (string, error) {
	rules := a.Rules()
	if rules.Webhook == "" {
		return "", nil
	}
	raised, err := a.raise(ctx, t, rules)
	if err != nil {
		return "", err
	}
	sent, err := a.send(ctx, t, rules)
	if raised+sent == 0 {
		return "", err
	}
	return fmt.Sprintf("raised %d, sent %d", raised, sent), err
}

// raise queues the alerts of the current and the previous minute.
func (a *Alerter) raise(ctx context.Context, t Term, rules config.Alerts) (raised int, err error) {
	now, err := a.state.now(ctx)
	if err != nil {
		return 0, err
	}
	for minute := now.Unix()/60 - 1; minute <= now.Unix()/60; minute++ {
		reports, err := a.state.reports(ctx, minute)
		if err != nil {
			return raised, err
		}
		n, err := a.queueAll(ctx, t, rules, findAlerts(rules, reports, now.UTC()))
		raised += n
		if err != nil {
			return raised, err
		}
	}
	return raised, nil
}

// queueAll queues those of all alerts that are due.
func (a *Alerter) queueAll(ctx context.Context, t Term, rules config.Alerts, all []Alert) (raised int, err error) {
	for _, alert := range all {
		fresh, full, err := a.state.raise(ctx, t, alert, alert.repeat(rules))
		switch {
		case err != nil:
			return raised, err
		case full:
			a.Done(alert, Dropped, errFull)
		case fresh:
			raised++
		}
	}
	return raised, nil
}

// errFull reports that the queue of alerts is full.
var errFull = errors.New("queue of alerts is full")

// send sends the queued alerts, until one fails.
func (a *Alerter) send(ctx context.Context, t Term, rules config.Alerts) (sent int, err error) {
	for ctx.Err() == nil && !time.Now().Before(a.nextAttempt) {
		text, err := a.state.next(ctx)
		if err != nil || text == "" {
			return sent, err
		}
		alert, err := decode[Alert](text)
		if err != nil {
			return sent, fmt.Errorf("read alerts: %w", err)
		}
		err = a.hook.post(ctx, rules, alert)
		if err != nil && ctx.Err() != nil {
			return sent, err
		}
		result := Sent
		switch {
		case err != nil && !errors.Is(err, errWebhookRefused) && time.Since(alert.At) < alertLifetime:
			result = Failed
		case err != nil:
			result = Dropped
		}
		a.Done(alert, result, err)
		if result == Failed {
			a.backOff()
			return sent, err
		}
		a.backoff = 0
		if err := a.state.done(ctx, t, text); err != nil {
			return sent, err
		}
		if result == Sent {
			sent++
		}
	}
	return sent, nil
}

// backOff delays the next attempt: exponential backoff with jitter.
func (a *Alerter) backOff() {
	a.backoff = min(max(2*a.backoff, minBackoff), maxBackoff)
	a.nextAttempt = time.Now().Add(a.backoff/2 + mathrand.N(a.backoff/2))
}

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
	rules := a.Rules()
	if rules.Webhook == "" || rules.Conversion == 0 {
		return "", nil
	}
	limits, err := a.Sends(ctx)
	if err != nil {
		return "", err
	}
	now, err := a.state.now(ctx)
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
func sentKeys(limit string, keys []sends.KeyCounts) []SentKey {
	return view.Each(keys[:min(len(keys), maxSentKeys)], func(k sends.KeyCounts) SentKey {
		return SentKey{Limit: limit, Key: k.Hash, Masked: k.Masked, Sent: k.Sent, Used: k.Used}
	})
}

// raise implements state.
func (r redisState) raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	keys := []string{"alerted:" + a.subject(), "alerts"}
	reply, err := r.runLeading(ctx, t, "raise", keys, encode(a), repeat.Milliseconds(), maxQueuedAlerts, (2 * alertLifetime).Milliseconds())
	if err != nil {
		return false, false, fmt.Errorf("raise an alert: %w", err)
	}
	return reply == int64(1), reply == int64(-1), nil
}

// next implements state.
func (r redisState) next(ctx context.Context) (text string, err error) {
	text, err = r.rdb.LIndex(ctx, r.prefix+"alerts", 0).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read alerts: %w", err)
	}
	return text, nil
}

// done implements state.
func (r redisState) done(ctx context.Context, t Term, text string) error {
	if _, err := r.runLeading(ctx, t, "done", []string{"alerts"}, text); err != nil {
		return fmt.Errorf("take out an alert: %w", err)
	}
	return nil
}

const (
	// webhookTimeout bounds a request to the webhook.
	webhookTimeout = 10 * time.Second
	// The header fields of an alert.
	signatureField = "Weir-Signature"
	idField        = "Weir-Alert-Id"
)

// errWebhookRefused reports that the webhook refused the alert permanently.
var errWebhookRefused = errors.New("webhook refused")

// A webhook sends alerts.
type webhook struct{ client *http.Client }

func newWebhook() *webhook {
	return &webhook{&http.Client{
		Timeout:       webhookTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // do not send a signed message elsewhere
	}}
}

// post sends a. It returns nil if the webhook returned with 2xx. An error that wraps
// errWebhookRefused must not be retried. Errors do not contain the URL, which may be secret.
func (w *webhook) post(ctx context.Context, rules config.Alerts, a Alert) error {
	body := encode(a)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, rules.Webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", errWebhookRefused, withoutURL(err))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(idField, a.ID)
	if rules.Secret != "" {
		r.Header.Set(signatureField, signature(rules.Secret, time.Now(), body))
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return fmt.Errorf("send an alert: %w", withoutURL(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // the body is ignored
	return checkStatus(answer.StatusCode)
}

// checkStatus returns the error for a response status.
func checkStatus(status int) error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fmt.Errorf("send an alert: webhook returned %d", status)
	}
	return fmt.Errorf("send an alert: %w: it answers %d", errWebhookRefused, status)
}

// signature returns t=SECONDS,v1=HEX: the time, and the HMAC-SHA256 of these
// seconds, a dot, and the body.
func signature(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// withoutURL removes the URL that net/http adds to err.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
