// Command bill writes what is inside a binary of Weir: a bill of materials in CycloneDX
// and the licences of all of it. It reads the build information of the binary, as go
// version -m does, and the module cache; the same binary gives the same bytes.
//
//	go run . -version v1.2.3 -sbom weir.cdx.json -licenses LICENSES ../../../weir
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of Weir, if it is not in the binary")
	sbom := flag.String("sbom", "", "`file` for the bill of materials")
	licenses := flag.String("licenses", "", "`file` for the licences")
	top := flag.String("top", "../../..", "`folder` of the repository")
	flag.Parse()
	if err := write(flag.Arg(0), *version, *top, outputs{sbom: *sbom, licenses: *licenses}); err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

// The outputs are the files to write, "" for none.
type outputs struct{ sbom, licenses string }

func write(binary, version, top string, to outputs) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the build information of %q: %w", binary, err)
	}
	if version != "" {
		info.Main.Version = version
	}
	parts, err := partsOf(info, top)
	if err != nil {
		return err
	}
	if to.licenses != "" {
		if err := os.WriteFile(to.licenses, licenseText(parts), 0o644); err != nil {
			return err
		}
	}
	if to.sbom == "" {
		return nil
	}
	text, err := sbomText(info, parts)
	if err != nil {
		return err
	}
	return os.WriteFile(to.sbom, text, 0o644)
}

// licenseText returns the texts of all parts, each once, with the parts it is of.
func licenseText(parts []part) []byte {
	var b strings.Builder
	b.WriteString("Weir is licensed under the Apache License 2.0. It contains the software below, under the\nlicences that follow it.\n\n")
	users := map[string][]string{}
	var texts []string
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s: %s\n", p.name, p.version, strings.Join(p.ids, " AND "))
		for _, f := range p.files {
			if users[f.text] == nil {
				texts = append(texts, f.text)
			}
			users[f.text] = append(users[f.text], p.name+" ("+f.name+")")
		}
	}
	for _, text := range texts {
		b.WriteString("\n" + strings.Repeat("=", 80) + "\n")
		for _, user := range slices.Compact(users[text]) {
			b.WriteString(user + "\n")
		}
		b.WriteString(strings.Repeat("-", 80) + "\n" + text)
	}
	return []byte(b.String())
}

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
