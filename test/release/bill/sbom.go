package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbomText returns the bill of materials. It has no serial number and no time: who
// builds the same binary gets the same bill.
func sbomText(info *debug.BuildInfo, parts []part) ([]byte, error) {
	purl := "pkg:golang/" + info.Main.Path + "@" + info.Main.Version
	main := cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: info.Main.Version, PackageURL: purl,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}, Properties: settings(info),
	}
	var components []cdx.Component
	var refs []string
	for _, p := range parts {
		c := cdx.Component{BOMRef: p.purl, Type: cdx.ComponentTypeLibrary, Name: p.name, Version: p.version, Scope: cdx.ScopeRequired, PackageURL: p.purl}
		c.Licenses = &cdx.Licenses{{Expression: strings.Join(p.ids, " AND ")}}
		if len(p.ids) == 1 {
			c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: p.ids[0]}}}
		}
		if sum, isHash := strings.CutPrefix(p.sum, "h1:"); isHash {
			raw, err := base64.StdEncoding.DecodeString(sum)
			if err != nil {
				return nil, fmt.Errorf("read the sum of %s: %w", p.name, err)
			}
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
		}
		components, refs = append(components, c), append(refs, p.purl)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: purl, Dependencies: &refs}}
	var b bytes.Buffer
	err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return b.Bytes(), err
}

// settings returns the platform that the binary is for.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	var out []cdx.Property
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			out = append(out, cdx.Property{Name: "cdx:gomod:build:env:" + s.Key, Value: s.Value})
		}
	}
	return &out
}
