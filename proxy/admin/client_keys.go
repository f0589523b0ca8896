package admin

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// Standing returns the state of a key.
func (c Client) Standing(ctx context.Context, q proxy.KeyQuery) (proxy.KeyStanding, error) {
	return post[proxy.KeyStanding](ctx, c, "/api/v1/keys/inspect", q)
}

// Change resets, grants, bans or unbans a key, or assigns a plan to it.
func (c Client) Change(ctx context.Context, k proxy.KeyChange) (proxy.KeyResult, error) {
	path := "/api/v1/keys/" + string(k.Action)
	switch k.Action {
	case proxy.KeyReset, proxy.KeyUnban, proxy.KeyUnassign:
		return post[proxy.KeyResult](ctx, c, path, KeyAction{KeyQuery: k.KeyQuery, Reason: k.Reason})
	case proxy.KeyGrant:
		return post[proxy.KeyResult](ctx, c, path, KeyGrant{KeyQuery: k.KeyQuery, Permits: k.Permits, Reason: k.Reason})
	case proxy.KeyBan:
		return post[proxy.KeyResult](ctx, c, path, KeyBan{KeyQuery: k.KeyQuery, For: k.For, Reason: k.Reason})
	case proxy.KeyAssign:
		return post[proxy.KeyResult](ctx, c, path, KeyPlan{KeyQuery: k.KeyQuery, Plan: k.Plan, For: k.For, Reason: k.Reason})
	}
	return proxy.KeyResult{}, fmt.Errorf("there is no action %q", k.Action)
}

// Outcome tells what became of the requests for a key.
func (c Client) Outcome(ctx context.Context, o proxy.Outcome) (proxy.OutcomeResult, error) {
	return post[proxy.OutcomeResult](ctx, c, "/api/v1/outcomes", o)
}

// Bans returns the bans of networks.
func (c Client) Bans(ctx context.Context) (Bans, error) { return get[Bans](ctx, c, "/api/v1/bans") }

// Plans returns the plans that are assigned to keys.
func (c Client) Plans(ctx context.Context) (Plans, error) {
	return get[Plans](ctx, c, "/api/v1/keys/plans")
}

// Maintenance returns the routes under maintenance.
func (c Client) Maintenance(ctx context.Context) (Maintenance, error) {
	return get[Maintenance](ctx, c, "/api/v1/maintenance")
}

// SetMaintenance begins or ends maintenance.
func (c Client) SetMaintenance(ctx context.Context, m MaintenanceChange) (Maintenance, error) {
	return post[Maintenance](ctx, c, "/api/v1/maintenance", m)
}

// Explain reports what the node would do with a request.
func (c Client) Explain(ctx context.Context, r proxy.ExplainRequest) (proxy.Explanation, error) {
	return post[proxy.Explanation](ctx, c, "/api/v1/explain", r)
}

// Decided returns the decision about the request with that id; none if it is no longer stored.
func (c Client) Decided(ctx context.Context, id string) (Decisions, error) {
	return get[Decisions](ctx, c, "/api/v1/decisions?request_id="+url.QueryEscape(id))
}

// TopOf returns the keys with most requests and with most refusals.
func (c Client) TopOf(ctx context.Context, q TopQuery) (Top, error) {
	return get[Top](ctx, c, "/api/v1/top?"+queryOf(map[string]string{"route": q.Route, "limit": q.Limit, "minutes": number(q.Minutes), "n": number(q.N)}))
}

// Decisions returns recent decisions of all nodes, newest first.
func (c Client) Decisions(ctx context.Context, q DecisionQuery) (Decisions, error) {
	before := ""
	if !q.Before.IsZero() {
		before = q.Before.Format(time.RFC3339Nano)
	}
	return get[Decisions](ctx, c, "/api/v1/decisions?"+queryOf(map[string]string{
		"request_id": q.RequestID, "route": q.Route, "limit": q.Limit, "outcome": q.Outcome, "key": q.Key, "before": before, "n": number(q.N),
	}))
}

// queryOf encodes the parameters that are not empty.
func queryOf(parameters map[string]string) string {
	query := url.Values{}
	for name, value := range parameters {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query.Encode()
}

// number returns n as a parameter; none if it is 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Upstreams returns the upstreams of the node, with the state of their targets on all nodes.
func (c Client) Upstreams(ctx context.Context) (Upstreams, error) {
	return get[Upstreams](ctx, c, "/api/v1/upstreams")
}

// Nodes returns all live nodes.
func (c Client) Nodes(ctx context.Context) (Nodes, error) { return get[Nodes](ctx, c, "/api/v1/nodes") }

// Leader returns the current leader.
func (c Client) Leader(ctx context.Context) (Leadership, error) {
	return get[Leadership](ctx, c, "/api/v1/leader")
}

// Statistics returns the counts of the last minutes.
func (c Client) Statistics(ctx context.Context, minutes int) (Statistics, error) {
	return get[Statistics](ctx, c, "/api/v1/statistics?minutes="+strconv.Itoa(minutes))
}

// Limits returns the limits of all routes of the node.
func (c Client) Limits(ctx context.Context) (Limits, error) {
	return get[Limits](ctx, c, "/api/v1/limits")
}

// AuditPage returns actions of operators, newest first.
func (c Client) AuditPage(ctx context.Context, q AuditQuery) (Audit, error) {
	return get[Audit](ctx, c, "/api/v1/audit?"+queryOf(map[string]string{"before": q.Before, "n": number(q.N)}))
}

// Routes returns the routes of the node.
func (c Client) Routes(ctx context.Context) (Routes, error) {
	return get[Routes](ctx, c, "/api/v1/routes")
}
