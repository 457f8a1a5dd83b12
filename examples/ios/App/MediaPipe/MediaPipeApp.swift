import SwiftUI

@main
struct MediaPipeApp: App {
    private let classifier = Result<any Classifier, any Error> {
        try MediaPipeClassifier(file: modelFile("mediapipe.tflite"))
    }

    var body: some Scene {
        WindowGroup { ClassifierScreen(classifier: classifier) }
    }
}
