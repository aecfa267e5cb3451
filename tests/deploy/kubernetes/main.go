// Judges Kubernetes objects as an API server of its version does, and prints what it would refuse.
//
// Reads YAML documents from standard input. Fields that the object's kind lacks, wrong types, and whatever breaks a rule
// of Kubernetes' own validation (names that match nothing, ports out of range, selectors that select no pod) are faults.
// Ends with 1 if there are faults.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podapi "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
)

// decoder refuses unknown and repeated fields, and wrong types.
var decoder = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

func init() {
	if err := monitoring.AddToScheme(legacyscheme.Scheme); err != nil {
		panic(err)
	}
}

func main() {
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	refused, seen := 0, 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println("not YAML:", err)
			os.Exit(1)
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if runtime.IsMissingKind(err) && !hasContent(document) {
			continue
		}
		seen++
		if err != nil {
			fmt.Println("cannot be read:", err)
			refused++
			continue
		}
		for _, fault := range judge(asServerHasIt(object)) {
			fmt.Printf("%s: %v\n", kind.Kind, fault)
			refused++
		}
	}
	fmt.Printf("%d objects, %d faults\n", seen, refused)
	if refused > 0 || seen == 0 {
		os.Exit(1)
	}
}

// asServerHasIt returns an object in the form that validation takes, with what helm and an API server fill in before.
func asServerHasIt(object runtime.Object) runtime.Object {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetNamespace() == "" {
		accessor.SetNamespace(core.NamespaceDefault)
	}
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return object // the operator's objects have one form only
	}
	if service, ok := internal.(*core.Service); ok && service.Spec.ClusterIP != "" {
		service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	}
	return internal
}

// judge returns what an API server would refuse of one object.
func judge(object runtime.Object) field.ErrorList {
	switch object := object.(type) {
	case *apps.StatefulSet:
		options := podapi.GetValidationOptionsFromPodTemplate(&object.Spec.Template, nil)
		return appsvalidation.ValidateStatefulSet(object, options)
	case *core.Service:
		return corevalidation.ValidateServiceCreate(object)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(object)
	case *core.Secret:
		return corevalidation.ValidateSecret(object)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(object)
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(object, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *monitoring.ServiceMonitor, *monitoring.PrometheusRule: // the operator's own; its fields are all there is to judge
		return nil
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(object, networkingvalidation.NetworkPolicyValidationOptions{})
	}
	return field.ErrorList{field.Forbidden(field.NewPath("kind"), fmt.Sprintf("nobody here judges a %T", object))}
}

// hasContent tells whether a document is more than comments.
func hasContent(document []byte) bool {
	value := map[string]any{}
	return yaml.Unmarshal(document, &value) != nil || len(value) > 0
}
