package config

import (
	"bytes"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Effective returns the configuration as YAML, with all defaults filled in and included
// files merged. Secrets are masked, and values of sensitive keys in lists and overrides are left out; a comment says how
// many. Loading the result gives the same configuration, except for these.
func (c *Config) Effective() ([]byte, error) {
	form := *c.form
	form.Include, form.Limits = list{}, map[string]*limitForm{}
	for name, l := range c.form.Limits {
		unnamed := *l
		unnamed.Name = "" // it stands before the limit
		form.Limits[name] = &unnamed
	}
	var root yaml.Node
	if err := root.Encode(&form); err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	c.hideValues(&root)
	protect(&root)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&root); err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	return b.Bytes(), nil
}

// protect escapes the dollar signs in values.
func protect(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "$") {
		n.Value = strings.ReplaceAll(n.Value, "$", "$$")
		n.Style = yaml.DoubleQuotedStyle
	}
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			protect(c)
		}
	}
}

// MarshalYAML writes the short form if that was written.
func (k *keyForm) MarshalYAML() (any, error) {
	if k.Text != "" {
		return k.Text, nil
	}
	type full keyForm
	return (*full)(k), nil
}

// MarshalYAML writes the name alone if that was written.
func (l *limitForm) MarshalYAML() (any, error) {
	if l.Named != "" {
		return l.Named, nil
	}
	type full limitForm
	return (*full)(l), nil
}

// MarshalYAML writes the steps alone if that says all.
func (n *normalForm) MarshalYAML() (any, error) {
	if n.DefaultRegion == "" && n.Extensions == "" && len(n.AllowTypes) == 0 {
		return n.As, nil
	}
	type full normalForm
	return (*full)(n), nil
}

// MarshalYAML writes the short form if that was written.
func (m *missingForm) MarshalYAML() (any, error) {
	if m.Policy != "" {
		return m.Policy, nil
	}
	type full missingForm
	return (*full)(m), nil
}

// MarshalYAML writes the short form if that was written.
func (p *planForm) MarshalYAML() (any, error) {
	if p.Text != "" {
		return p.Text, nil
	}
	type full planForm
	return (*full)(p), nil
}

// MarshalYAML writes the short form if that was written.
func (u *upstreamForm) MarshalYAML() (any, error) {
	if u.Text != "" {
		return u.Text, nil
	}
	type full upstreamForm
	return (*full)(u), nil
}

// MarshalYAML hides the two secrets as two, since one must not replace itself.
func (p privacyForm) MarshalYAML() (any, error) {
	previous := string(p.PreviousSecret)
	if previous != "" {
		previous = "(the former one, hidden as well)"
	}
	return struct {
		HashSecret     secret `yaml:"hash_secret"`
		PreviousSecret string `yaml:"previous_secret"`
		LogClient      string `yaml:"log_client"`
	}{p.HashSecret, previous, p.LogClient}, nil
}

// MarshalYAML hides the token so that it still differs from those of others.
func (t *tokenForm) MarshalYAML() (any, error) {
	hidden := ""
	if t.Token != "" {
		hidden = "(hidden, of " + t.Name + ")"
	}
	return struct {
		Name  string `yaml:"name"`
		Token string `yaml:"token"`
		Role  string `yaml:"role"`
	}{t.Name, hidden, t.Role}, nil
}
