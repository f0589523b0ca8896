package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
)

// flushInterval is the interval between attempts to write the audit entries that could not be
// written, and to apply the changes that could not be applied, while Redis was unreachable.
const flushInterval = time.Second

// logOperator logs an operator's action, successful or not.
func (n *Node) logOperator(e view.AuditEntry) {
	line := n.log.Info()
	if e.Error != "" {
		line = n.log.Warn().Str("error", e.Error)
	}
	line = line.Str("who", e.Who).Str("operator_address", e.Address).Str("action", e.Action)
	if e.Masked != "" {
		line = line.Str("key", e.Masked).Str("key_hash", e.Hash).Strs("limits", e.Limits)
	}
	if e.For != "" {
		line = line.Str("for", e.For)
	}
	if e.Permits != 0 {
		line = line.Int64("permits", e.Permits)
	}
	if e.Detail != "" {
		line = line.Str("detail", e.Detail)
	}
	line.Bool("one_node", e.OneNode).Str("reason", e.Reason).Msg("operator action")
}

// record stores an audit entry for the operator of ctx, after the action. If Redis is unreachable,
// the entry is written later.
func (n *Node) record(ctx context.Context, e view.AuditEntry) { n.recordLater(ctx, e, nil) }

// recordLater is like record for a change that waits for Redis; later is nil if it does not.
func (n *Node) recordLater(ctx context.Context, e view.AuditEntry, later *cluster.Later) {
	who := admin.OperatorOf(ctx)
	e.Who, e.Address = who.Name, who.Address
	if err := n.audit.Record(ctx, e, later); err != nil {
		n.log.Warn().Err(err).Msg("audit entry not written yet")
	}
}

// flushAudit applies pending changes of keys and writes pending audit entries periodically, until ctx is done.
func (n *Node) flushAudit(ctx context.Context) {
	every(ctx, flushInterval, func() {
		n.proxy.ApplyDeferred(ctx)
		_ = n.audit.Flush(ctx) // an unreachable Redis is logged elsewhere
	})
}

// closeAudit writes pending audit entries for the last time.
func (n *Node) closeAudit(ctx context.Context) error {
	if err := n.audit.FlushAll(ctx); err != nil {
		n.log.Warn().Err(err).Msg("audit entries lost; the log has them")
	}
	return nil
}

// operatorChange changes a key for an operator. An invalid request changes nothing and is not recorded.
func (n *Node) operatorChange(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
	network, named, err := n.proxy.NetworkOf(c.KeyQuery)
	if err != nil {
		return view.KeyResult{}, err
	}
	if named {
		return n.changeNetwork(ctx, c, network)
	}
	change, isPlan := n.proxy.Change, c.Action == view.KeyAssign || c.Action == view.KeyUnassign
	if isPlan {
		change = n.changePlan
	}
	r, err := change(ctx, c)
	if errors.Is(err, view.ErrKeyQuery) {
		return r, err
	}
	if err == nil && r.Everywhere && !isPlan {
		n.spread(ctx, &r)
	}
	e := cluster.AuditOf(admin.OperatorOf(ctx).Name, c, r, err)
	later := n.later(r)
	if later != nil && !isPlan {
		later.Settled = r.Settled
	}
	n.recordLater(ctx, e, later)
	n.events.Publish(admin.Event{Type: admin.EventKey, Action: e.Action, Who: e.Who, Masked: e.Masked, KeyHash: e.Hash, Error: e.Error})
	return r, err
}

// operatorOutcome applies an outcome for an operator. An invalid one is not recorded.
func (n *Node) operatorOutcome(ctx context.Context, o proxy.Outcome) (proxy.OutcomeResult, error) {
	r, err := n.proxy.ApplyOutcome(ctx, o)
	err = whileAway(err, "report the outcome again when it is back")
	if errors.Is(err, view.ErrKeyQuery) {
		return r, err
	}
	e := view.AuditEntry{Action: o.Outcome, Masked: r.Logged, Hash: r.Hash}
	for _, l := range r.Returned {
		e.Limits = append(e.Limits, l.Route+"."+l.Limit)
	}
	if err != nil {
		e.Error = proxy.ErrorText(err)
	}
	n.record(ctx, e)
	return r, err
}

// operatorReload reloads the configuration for an operator.
func (n *Node) operatorReload(ctx context.Context) (admin.Reloaded, error) {
	r, err := n.reload(ctx)
	n.record(ctx, configAudit("reload", fmt.Sprintf("generation %d", r.Generation), err))
	return r, err
}

// publishReload publishes the result of a reload or push to the subscribers of events.
func (n *Node) publishReload(generation int64, hash string, err error) {
	one := admin.Event{Type: admin.EventReload, Generation: generation, Hash: hash}
	if err != nil {
		one.Error = err.Error()
	}
	n.events.Publish(one)
}

// whileAway returns err as operators are told that they could not change something: if Redis cannot be reached, with
// that first, whatever noticed it, and then what to do. A push of which the outcome is unknown says so itself.
func whileAway(err error, advice string) error {
	if text, away := proxy.Unreachable(err); away && !errors.Is(err, cluster.ErrUnknown) {
		return &admin.Problem{Status: http.StatusServiceUnavailable, Detail: strings.Replace(text, "the store is", "redis is", 1) + "; " + advice}
	}
	return err
}

// configAudit returns the audit entry for a change of the configuration.
func configAudit(action, detail string, err error) view.AuditEntry {
	e := view.AuditEntry{Action: action, Detail: detail}
	if err != nil {
		e.Detail, e.Error = "", proxy.ErrorText(err)
	}
	return e
}

// auditTrail returns a page of the audit trail.
func (n *Node) auditTrail(ctx context.Context, q view.AuditQuery) (view.Audit, error) {
	page, err := n.audit.Page(ctx, q.Before, cmp.Or(q.N, 100))
	if errors.Is(err, cluster.ErrAuditID) {
		err = &admin.Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("before=%s is not the id of an entry; write next of the page before", q.Before)}
	}
	return page, err
}
