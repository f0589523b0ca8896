package ratelimit

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
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
	b = appendText(b, 1, r.version)
	b = appendMessage(b, 2, appendText(nil, 1, r.node))
	b = appendText(b, 4, typeURL)
	b = appendText(b, 5, r.nonce)
	if r.fault != "" {
		status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), invalidArgument)
		b = appendMessage(b, 6, appendText(status, 2, r.fault))
	}
	return b
}

// invalidArgument is the code of a configuration that is refused.
const invalidArgument = 3

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

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
	r.fault = eachField(data, func(f field) error {
		switch f.number {
		case 1:
			r.version = string(f.bytes)
		case 2:
			r.resources = append(r.resources, f.bytes)
		case 5:
			r.nonce = string(f.bytes)
		}
		return nil
	})
}

// value returns the value of a resource, which is an Any.
func value(resource []byte) (data []byte, err error) {
	var kind string
	err = eachField(resource, func(f field) error {
		switch f.number {
		case 1:
			kind = string(f.bytes)
		case 2:
			data = f.bytes
		}
		return nil
	})
	if err == nil && kind != typeURL {
		err = fmt.Errorf("a resource of type %q is not a configuration of limits", kind)
	}
	return data, err
}

// A domain is a RateLimitConfig, in the form of a configuration file of ratelimit.
type domain struct {
	Domain      string       `json:"domain"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
}

// A descriptor is a RateLimitDescriptor.
type descriptor struct {
	Key         string       `json:"key"`
	Value       string       `json:"value,omitempty"`
	Policy      *policy      `json:"rate_limit,omitempty"`
	Descriptors []descriptor `json:"descriptors,omitempty"`
	Shadow      bool         `json:"shadow_mode,omitempty"`
	Quota       bool         `json:"quota_mode,omitempty"`
}

// A policy is a RateLimitPolicy.
type policy struct {
	Unit      string     `json:"unit,omitempty"`
	Count     uint32     `json:"requests_per_unit"`
	Unlimited bool       `json:"unlimited,omitempty"`
	Name      string     `json:"name,omitempty"`
	Replaces  []replaced `json:"replaces,omitempty"`
}

// A replaced is a RateLimitReplace.
type replaced struct {
	Name string `json:"name"`
}

// limits reports whether a rule of the domain has a limit.
func (d *domain) limits() bool { return limited(d.Descriptors) }

func limited(all []descriptor) bool {
	for _, d := range all {
		if d.Policy != nil && !d.Policy.Unlimited || limited(d.Descriptors) {
			return true
		}
	}
	return false
}

func (d *domain) unmarshal(data []byte) error {
	return eachField(data, func(f field) error {
		switch f.number {
		case 2:
			d.Domain = string(f.bytes)
		case 3:
			return appendDescriptor(&d.Descriptors, f.bytes)
		}
		return nil
	})
}

// appendDescriptor decodes a RateLimitDescriptor.
func appendDescriptor(all *[]descriptor, data []byte) error {
	var d descriptor
	err := eachField(data, func(f field) error {
		switch f.number {
		case 1:
			d.Key = string(f.bytes)
		case 2:
			d.Value = string(f.bytes)
		case 3:
			d.Policy = &policy{}
			return d.Policy.unmarshal(f.bytes)
		case 4:
			return appendDescriptor(&d.Descriptors, f.bytes)
		case 5:
			d.Shadow = f.varint != 0
		case 7:
			d.Quota = f.varint != 0
		}
		return nil
	})
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
	return eachField(data, func(f field) error {
		switch f.number {
		case 1:
			p.Unit = unitName(f.varint)
		case 2:
			p.Count = uint32(f.varint)
		case 3:
			p.Unlimited = f.varint != 0
		case 4:
			p.Name = string(f.bytes)
		case 5:
			var r replaced
			err := eachField(f.bytes, func(f field) error {
				if f.number == 1 {
					r.Name = string(f.bytes)
				}
				return nil
			})
			p.Replaces = append(p.Replaces, r)
			return err
		}
		return nil
	})
}

// A field is a field of a message; it has a number or bytes.
type field struct {
	number protowire.Number
	varint uint64
	bytes  []byte
}

// errMessage reports that bytes are no message.
var errMessage = errors.New("not a message of this type")

// eachField calls do for all fields of a message that are numbers or bytes.
func eachField(data []byte, do func(field) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errMessage
		}
		data = data[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			f.number, n = 0, protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return errMessage
		}
		data = data[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}
