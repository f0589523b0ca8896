package ratelimit

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/proxy/protobuf"
)

// The messages of envoy.service.discovery.v3 and ratelimit.config.ratelimit.v3. Their Go packages would bring
// all configuration types of Envoy.

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A discoveryRequest is a DiscoveryRequest: a subscription, an ACK, or a NACK with an error.
type discoveryRequest struct {
	version string // 1: the last one that is served
	node    string // 2.1
	nonce   string // 5: that of the response
	fault   string // 6.2
}

func (r *discoveryRequest) marshal() (b []byte) {
	b = protobuf.AppendText(b, 1, r.version)
	b = protobuf.AppendMessage(b, 2, protobuf.AppendText(nil, 1, r.node))
	b = protobuf.AppendText(b, 4, typeURL)
	b = protobuf.AppendText(b, 5, r.nonce)
	if r.fault != "" {
		status := protobuf.AppendNumber(nil, 1, invalidArgument)
		b = protobuf.AppendMessage(b, 6, protobuf.AppendText(status, 2, r.fault))
	}
	return b
}

// invalidArgument is the code of a configuration that is refused.
const invalidArgument = 3

// A discoveryResponse is a DiscoveryResponse.
type discoveryResponse struct {
	version   string   // 1
	resources [][]byte // 2
	nonce     string   // 5
	fault     error    // why it cannot be read
}

// unmarshal decodes a response. The nonce of one with faults is read as well: it is in the NACK.
func (r *discoveryResponse) unmarshal(data []byte) {
	*r = discoveryResponse{}
	r.fault = protobuf.Decode(data, protobuf.Fields{
		1: &r.version,
		2: func(b []byte) error {
			r.resources = append(r.resources, b)
			return nil
		},
		5: &r.nonce,
	}, nil)
}

// value returns the value of a resource, which is an Any.
func value(resource []byte) (data []byte, err error) {
	var kind string
	err = protobuf.Decode(resource, protobuf.Fields{1: &kind, 2: func(b []byte) error {
		data = b
		return nil
	}}, nil)
	if err == nil && kind != typeURL {
		err = fmt.Errorf("a resource of type %q is not a configuration of limits", kind)
	}
	return data, err
}

// A domain is a RateLimitConfig, in the form of a configuration file of ratelimit.
type domain struct {
	Domain      string       `json:"domain"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
	Unknown     unknown      `json:"unknown_fields,omitempty"`
}

// A descriptor is a RateLimitDescriptor.
type descriptor struct {
	Key         string       `json:"key"`
	Value       string       `json:"value,omitempty"`
	Policy      *policy      `json:"rate_limit,omitempty"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
	Shadow      bool         `json:"shadow_mode,omitempty"`
	Quota       bool         `json:"quota_mode,omitempty"`
	Unknown     unknown      `json:"unknown_fields,omitempty"`
}

// A policy is a RateLimitPolicy.
type policy struct {
	Unit      string     `json:"unit,omitempty"`
	Count     uint32     `json:"requests_per_unit"`
	Unlimited bool       `json:"unlimited,omitempty"`
	Name      string     `json:"name,omitempty"`
	Replaces  []replaced `json:"replaces,omitempty"`
	Unknown   unknown    `json:"unknown_fields,omitempty"`
}

// A replaced is a RateLimitReplace.
type replaced struct {
	Name string `json:"name"`
}

// limits reports whether a rule of the domain has a limit.
func (d *domain) limits() bool { return slices.ContainsFunc(d.Descriptors, descriptor.limits) }

// limits reports whether d, or a descriptor in it, has a limit.
func (d descriptor) limits() bool {
	return d.Policy != nil && !d.Policy.Unlimited || slices.ContainsFunc(d.Descriptors, descriptor.limits)
}

// An unknown is the numbers of fields that are not known, for a note.
type unknown []int32

func (u *unknown) add(number protowire.Number) { *u = append(*u, int32(number)) }

func (d *domain) unmarshal(data []byte) error {
	return protobuf.Decode(data, protobuf.Fields{
		1: nil, // the name of the resource
		2: &d.Domain,
		3: func(b []byte) error { return appendDescriptor(&d.Descriptors, b) },
	}, d.Unknown.add)
}

// appendDescriptor decodes a RateLimitDescriptor.
func appendDescriptor(all *[]descriptor, data []byte) error {
	var d descriptor
	err := protobuf.Decode(data, protobuf.Fields{
		1: &d.Key,
		2: &d.Value,
		3: func(b []byte) error {
			d.Policy = &policy{}
			return d.Policy.unmarshal(b)
		},
		4: func(b []byte) error { return appendDescriptor(&d.Descriptors, b) },
		5: &d.Shadow,
		6: nil, // detailed_metric
		7: &d.Quota,
	}, d.Unknown.add)
	*all = append(*all, d)
	return err
}

// unitName returns the name of a RateLimitUnit.
func unitName(unit uint64) string {
	names := []string{"", "second", "minute", "hour", "day", "month", "year", "week"}
	if unit >= uint64(len(names)) {
		return fmt.Sprint(unit)
	}
	return names[unit]
}

func (p *policy) unmarshal(data []byte) error {
	var unit, count uint64
	err := protobuf.Decode(data, protobuf.Fields{
		1: &unit,
		2: &count,
		3: &p.Unlimited,
		4: &p.Name,
		5: func(b []byte) error {
			var r replaced
			err := protobuf.Decode(b, protobuf.Fields{1: &r.Name}, nil)
			p.Replaces = append(p.Replaces, r)
			return err
		},
	}, p.Unknown.add)
	p.Unit, p.Count = unitName(unit), uint32(count)
	return err
}
