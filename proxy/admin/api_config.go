package admin

import (
	"context"
	"net/http"
	"reflect"
)

// reloading returns the endpoint for a reload.
func (o Options) reloading() endpoint {
	return endpoint{
		method: http.MethodPost, path: "/reload", role: Write, response: reflect.TypeFor[Reloaded](),
		summary: "This node reads its configuration anew; where it is wrong, nothing has changed.",
		handle: func(w http.ResponseWriter, r *http.Request) {
			if checkQuery(w, r, nil) {
				o.reload(w, r)
			}
		},
	}
}

func (o Options) push(ctx context.Context, p Push) (Pushed, error) { return o.Cluster.Push(ctx, p) }

func (o Options) rollback(ctx context.Context, r Rollback) (Pushed, error) {
	return o.Cluster.Rollback(ctx, r)
}

func (o Options) plan(ctx context.Context, p Push) (Plan, error) { return o.Plan(ctx, p.Bundle) }

// exclusive returns e limited to one request at a time. Others are refused before their bodies are
// read: a plan costs as much as a reload.
func (e endpoint) exclusive(why string) endpoint {
	busy, next := make(chan struct{}, 1), e.handle
	e.handle = func(w http.ResponseWriter, r *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			next(w, r)
		default:
			problem(w, http.StatusTooManyRequests, why)
		}
	}
	return e
}
