package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
)

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

// An alertQueue holds alerts to be sent.
type alertQueue interface {
	// raise queues a, unless an alert with the same subject was raised less than
	// repeat ago; full reports a full queue.
	raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error)
	// next returns the first alert; false if there is none.
	next(ctx context.Context) (queuedAlert, bool, error)
	// done removes an alert.
	done(ctx context.Context, t Term, l queuedAlert) error
}

// A queuedAlert is an alert in the queue.
type queuedAlert struct {
	Alert
	text string
}

// An Alerter sends alerts about exhausted limits to a webhook, once for all
// nodes. It uses the reports for the statistics, so it adds no cost to requests.
// For each limit an alert is raised at most once in the configured time, and sent
// until the webhook accepts it (at least once: if a leader dies after sending,
// the next leader sends it again, with the same id).
type Alerter struct {
	store statisticsStore
	queue alertQueue
	rules func() config.Alerts
	sends func(ctx context.Context) ([]sends.LimitCounts, error)
	hook  *webhook
	done  func(a Alert, result string, err error)

	backoff     time.Duration // current backoff; 0 after a success
	nextAttempt time.Time     // time of the next attempt
}

// AlerterOptions configure an Alerter.
type AlerterOptions struct {
	Statistics *Statistics
	Client     redis.UniversalClient // nil for a single process
	Prefix     string
	Rules      func() config.Alerts // called at each run: a reload may change them
	// Sends returns, for limits with return_on, the keys of which most was sent on all nodes, masked.
	Sends func(ctx context.Context) ([]sends.LimitCounts, error)
	// Done is called with the result of each attempt to send an alert: Sent,
	// Failed or Dropped.
	Done func(a Alert, result string, err error)
}

// NewAlerter returns an Alerter. It sends nothing before its Task runs.
func NewAlerter(o AlerterOptions) *Alerter {
	a := &Alerter{store: o.Statistics.store, rules: o.Rules, sends: o.Sends, hook: newWebhook(), done: o.Done}
	if o.Client == nil {
		a.queue = newMemory("")
	} else {
		a.queue = newRedisAlerts(o.Client, o.Prefix)
	}
	return a
}

// Task returns the leader task that raises and sends alerts.
func (a *Alerter) Task() Task { return Task{Name: "alerts", Every: alertInterval, Run: a.run} }

func (a *Alerter) run(ctx context.Context, t Term) (string, error) {
	rules := a.rules()
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
	now, err := a.store.now(ctx)
	if err != nil {
		return 0, err
	}
	for minute := now.Unix()/60 - 1; minute <= now.Unix()/60; minute++ {
		reports, err := a.store.reports(ctx, minute)
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
		fresh, full, err := a.queue.raise(ctx, t, alert, alert.repeat(rules))
		switch {
		case err != nil:
			return raised, err
		case full:
			a.done(alert, Dropped, errFull)
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
		l, found, err := a.queue.next(ctx)
		if err != nil || !found {
			return sent, err
		}
		err = a.hook.post(ctx, rules, l.Alert)
		if err != nil && ctx.Err() != nil {
			return sent, err
		}
		result := Sent
		switch {
		case err != nil && !errors.Is(err, errWebhookRefused) && time.Since(l.At) < alertLifetime:
			result = Failed
		case err != nil:
			result = Dropped
		}
		a.done(l.Alert, result, err)
		if result == Failed {
			a.backOff()
			return sent, err
		}
		a.backoff = 0
		if err := a.queue.done(ctx, t, l); err != nil {
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
	a.nextAttempt = time.Now().Add(a.backoff/2 + rand.N(a.backoff/2))
}
