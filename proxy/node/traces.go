package node

import (
	"context"
	"errors"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/trace"
)

// openTraces returns the exporter for the configured collector, or nil. It ends after the last
// request.
func (n *Node) openTraces(c config.Traces) *trace.Exporter {
	if c.Endpoint == "" {
		return nil
	}
	e := trace.NewExporter(trace.Options{
		Endpoint: c.Endpoint, Headers: c.Headers, Service: c.Service, Version: n.build.Version, Instance: n.store.id,
	}, n.registry)
	sending := newTasks()
	sending.start("traces", e.Run)
	n.closers.push("traces", func(ctx context.Context) error {
		return errors.Join(sending.stop(ctx), sending.wait(ctx)) // queued spans are sent first
	})
	return e
}
