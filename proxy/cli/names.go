package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// namesWithin bounds how long a completion waits for a running weir.
const namesWithin = time.Second

// namesCommand prints what completion scripts propose: names of a running weir or, without one, of the
// configuration in the working directory.
type namesCommand struct {
	adminFlags
	Of string `arg:"" enum:"keys,routes,limits" help:"keys, routes or limits."`
}

// Run prints the names, one per line; none if there is neither a running weir nor a configuration.
func (c namesCommand) Run(ctx context.Context, w Env) error {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	limits, err := c.client().Limits(ctx)
	if err != nil {
		limits = configuredLimits()
	}
	var names []string
	for _, l := range limits.Limits {
		switch c.Of {
		case "routes":
			names = append(names, l.Route)
		case "limits":
			names = append(names, l.Name)
		case "keys":
			parts := l.Parts
			if len(parts) == 0 {
				parts = []string{l.Key}
			}
			for _, p := range parts {
				names = append(names, p+"=")
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if _, err := fmt.Fprintln(w.Stdout, name); err != nil {
			return err
		}
	}
	return nil
}

// configuredLimits returns the names of the limits of the default configuration file.
func configuredLimits() (all admin.Limits) {
	path, err := configPath("")
	if err != nil {
		return all
	}
	c, err := config.Load(path)
	if err != nil {
		return all
	}
	for _, r := range c.Routes {
		for _, l := range r.Limits {
			one := admin.Limit{Route: r.Name, Name: l.Name, Key: l.Key.Name}
			if l.Key.Join != nil {
				for _, part := range l.Key.Components() {
					one.Parts = append(one.Parts, part.Name)
				}
			}
			all.Limits = append(all.Limits, one)
		}
	}
	return all
}
