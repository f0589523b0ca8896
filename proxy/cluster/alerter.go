package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// alarmEvery is the pause between two looks at what is reported.
	alertInterval = 2 * time.Second
	// maxQueuedAlerts is how many alerts wait to be sent; more are lost.
	maxQueuedAlerts = 100
	// alertLifetime is for how long an alert that the webhook does not take is sent
	// again and again.
	alertLifetime = time.Hour
	// minBackoff and maxBackoff bound the pause after a failure; it doubles.
	minBackoff, maxBackoff = time.Second, time.Minute
)

// The results of an alert.
const (
	Sent    = "sent"
	Failed  = "failed"  // it will be sent again
	Dropped = "dropped" // it will not: the webhook wants none of it, or not in time, or the queue was full
)

// An alertQueue is where alerts wait to be sent.
type alertQueue interface {
	// raise puts a in, unless the same was put in less than repeat ago; full says
	// that there was no room.
	raise(ctx context.Context, t Term, a Alert, repeat time.Duration) (raised, full bool, err error)
	// next is the one to be sent next; false if there is none.
	next(ctx context.Context) (queuedAlert, bool, error)
	// done takes one out.
	done(ctx context.Context, t Term, l queuedAlert) error
}

// A queuedAlert is an alert as it stands in the queue.
type queuedAlert struct {
	Alert
	text string
}

// An Alerter tells a webhook of limits that are used up, once for all nodes. It
// goes by what the nodes report for the statistics, so it costs no request
// anything. An alert is raised once in the configured time for each limit; it is
// sent until the webhook has taken it. A leader that dies between sending one and
// noting that makes the next one send it again, under the same id.
type Alerter struct {
	store statisticsStore
	queue alertQueue
	rules func() config.Alerts
	hook  *hook
	done  func(a Alert, result string, err error)

	pause time.Duration // after the last failure; 0 after none
	after time.Time     // when it may be sent again
}

// AlerterOptions say what an Alerter goes by and whom it tells.
type AlerterOptions struct {
	Statistics *Statistics
	Client     redis.UniversalClient // nil for a process that shares nothing
	Prefix     string
	Rules      func() config.Alerts // asked at each run: a reload may change them
	// Done is called with what became of an attempt to send an alert: Sent, Failed
	// or Dropped.
	Done func(a Alert, result string, err error)
}

// NewAlerter makes an Alerter. It sends nothing before its Task runs.
func NewAlerter(o AlerterOptions) *Alerter {
	a := &Alerter{store: o.Statistics.store, rules: o.Rules, hook: newHook(), done: o.Done}
	if o.Client == nil {
		a.queue = newMemoryAlerts()
	} else {
		a.queue = newRedisAlerts(o.Client, o.Prefix)
	}
	return a
}

// Task looks at what is reported and sends what is to be told.
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

// raise puts what this minute and the one before give reason to into the queue.
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
		for _, alert := range findAlerts(rules, reports, now.UTC()) {
			fresh, full, err := a.queue.raise(ctx, t, alert, rules.Repeat)
			switch {
			case err != nil:
				return raised, err
			case full:
				a.done(alert, Dropped, errFull)
			case fresh:
				raised++
			}
		}
	}
	return raised, nil
}

// errFull says that there were too many alerts at a time.
var errFull = errors.New("queue of alerts is full")

// send sends what waits, until one fails.
func (a *Alerter) send(ctx context.Context, t Term, rules config.Alerts) (sent int, err error) {
	for ctx.Err() == nil && !time.Now().Before(a.after) {
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
		case err != nil && !errors.Is(err, errRejected) && time.Since(l.At) < alertLifetime:
			result = Failed
		case err != nil:
			result = Dropped
		}
		a.done(l.Alert, result, err)
		if result == Failed {
			a.backOff()
			return sent, err
		}
		a.pause = 0
		if err := a.queue.done(ctx, t, l); err != nil {
			return sent, err
		}
		if result == Sent {
			sent++
		}
	}
	return sent, nil
}

// backOff puts off the next attempt: twice as long after each failure, and by chance,
// so that receivers are not met by all Weirs at once.
func (a *Alerter) backOff() {
	a.pause = min(max(2*a.pause, minBackoff), maxBackoff)
	a.after = time.Now().Add(a.pause/2 + rand.N(a.pause/2))
}
