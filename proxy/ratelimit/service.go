package ratelimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/convert"
)

// Name is what the configuration is called in problems.
const Name = "environment"

// nothing are the limits before there are some: a configuration needs a route.
const nothing = "routes:\n  - {name: no-limits, match: {domain: none, descriptor: {none: none}}}\n"

// A Service serves limits of an xDS server.
type Service struct {
	settings Settings
	health   health

	mu     sync.Mutex // guards what follows
	limits []byte     // YAML
}

// NewService returns a Service without limits.
func NewService(s Settings) *Service {
	return &Service{settings: s, limits: []byte(nothing)}
}

// Load returns the configuration of the machine with the limits.
func (s *Service) Load() (*config.Config, error) { return config.LoadText(Name, s.text()) }

func (s *Service) text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(bytes.Clone(s.settings.Machine), s.limits...)
}

// exchange sets the limits and returns those before.
func (s *Service) exchange(limits []byte) (before []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.limits = s.limits, limits
	return before
}

// ServeHealth answers health checks until stop is called.
func (s *Service) ServeHealth() (stop func(), err error) {
	return s.health.serve(s.settings.Health)
}

// Run gets limits until ctx is done. Weir is healthy from now on, or when it has limits, until then. Reload
// makes it serve what Load returns.
func (s *Service) Run(ctx context.Context, log zerolog.Logger, reload func(context.Context) error) {
	s.health.ready.Store(!s.settings.NeedsLimits)
	client := &Client{Server: s.settings.XDS, Log: log, Serve: func(ctx context.Context, resources [][]byte) error {
		differences, err := s.serve(ctx, resources, reload)
		for _, what := range differences {
			log.Warn().Str("problem", what).Msg("limits differ from what they are in ratelimit")
		}
		return err
	}}
	client.Run(ctx)
	s.health.ready.Store(false)
}

// serve makes Weir serve resources, and returns what is different in them.
func (s *Service) serve(ctx context.Context, resources [][]byte,
	reload func(context.Context) error) (differences []string, err error) {
	limits, differences, err := convertResources(resources)
	if err != nil {
		return nil, err
	}
	before := s.exchange(limits)
	if err := reload(ctx); err != nil {
		s.exchange(before)
		return nil, err
	}
	s.health.ready.Store(true)
	return differences, nil
}

// convertResources returns the limits of resources as YAML of Weir, and what is different in them.
func convertResources(resources [][]byte) (limits []byte, differences []string, err error) {
	var file bytes.Buffer // of several documents; JSON is YAML
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false)
	limited := false
	for _, r := range resources {
		data, err := value(r)
		var d domain
		if err == nil {
			err = d.unmarshal(data)
		}
		if err != nil {
			return nil, nil, err
		}
		limited = limited || d.limits()
		file.WriteString("---\n")
		if err := encoder.Encode(d); err != nil {
			return nil, nil, err
		}
	}
	if !limited {
		return []byte(nothing), nil, nil
	}
	result, err := convert.Convert("ratelimit", "limits", &file)
	var fault *convert.Error
	if errors.As(err, &fault) {
		return nil, nil, errors.New(fault.What + "; " + fault.Expected) // nobody sees the file
	}
	for _, n := range result.Notes {
		if n.Line > 0 { // of the others all limits have one
			differences = append(differences, n.What)
		}
	}
	return result.Limits, differences, err
}
