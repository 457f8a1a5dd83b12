import SwiftUI

@main
struct LiteRtApp: App {
    private let classifier = Result<any Classifier, any Error> { try LiteRtClassifier(file: modelFile("model.tflite")) }

    var body: some Scene {
        WindowGroup { ClassifierScreen(classifier: classifier) }
    }
}
